// Text to learn from: the bytes of a file, or of all texts of a folder tree one after the other.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace aisc {

// Which files of a folder tree belong to the corpus. Left out always: names that begin with a dot,
// folders named build or runs or that hold a run (metrics.jsonl), links to folders (so a circle of
// links ends), and what is no text (why_no_text).
struct CorpusOptions {
  std::vector<std::string> names{};  // how a file's name may end (".md"); empty: all files
  std::int64_t largest_file_bytes = std::int64_t{1} << 60;  // larger files are left out
  std::int64_t block_bytes = 1024;                          // Corpus::block_bytes
};

// The choice for the course's own tree: its prose, which is handouts and documents. It reads as
// English, and changes less than sources do. Code in fences and tables stay: they are a part of it.
CorpusOptions course_prose();

// A text in two parts that have no byte in common. Every tenth block (blocks 9, 19, ...) is for
// validation, so that both parts resemble the whole; of a text of less than ten blocks it is the
// last tenth.
struct Corpus {
  static constexpr std::int64_t kValidationEvery = 10;

  std::vector<std::uint8_t> training;
  std::vector<std::uint8_t> validation;
  // Where one file of a folder ends and the next begins: before this byte of a part.
  std::vector<std::int64_t> training_seams, validation_seams;
  std::int64_t files = 0;    // that the text consists of
  std::int64_t skipped = 0;  // that the folder holds besides, with other names
  // Files that are left out for what they are, in the order of their paths, and why.
  std::vector<std::string> left_out;
  std::uint64_t hash = 0;  // of the whole text: equal where two runs saw the same
  std::int64_t block_bytes = CorpusOptions{}.block_bytes;
};

// Reads `path`, a text file or a folder of them, byte for byte. The files of a folder come in the
// order of their paths, compared byte by byte, so every machine reads the same text; before each
// stands a line with its path, "// ==== common/core/tensor.h ====", so that a model can see where
// files begin.
// Throws Error: the path does not exist, is neither file nor folder, is unreadable or holds no
// text, and why.
Corpus read_corpus(const std::string& path, const CorpusOptions& options = {});

// The rule above, for a text at hand: files is 1. `seams`: bytes of it before which a file begins.
// Throws Error for blocks of less than a byte.
Corpus split_text(std::span<const std::uint8_t> text, std::span<const std::int64_t> seams = {},
                  std::int64_t block_bytes = CorpusOptions{}.block_bytes);

// Text is bytes without NUL, in UTF-8 or any other encoding of 8-bit units: a model reads bytes.
// Why these are none, with the place; "" for text.
std::string why_no_text(std::span<const std::uint8_t> bytes);

// A line for the user where files were left out: how many, and the first few; else "".
std::string left_out_remark(const Corpus& corpus);

}  // namespace aisc
