// Text to learn from: the bytes of a file, or of all texts of a folder tree one after the other.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace aisc {

// Which files of a folder tree belong to the corpus. Left out always: names that begin with a dot,
// folders named build or runs or that hold a run (metrics.jsonl), links to folders (so a circle of
// links ends), and what is not UTF-8 text.
struct CorpusOptions {
  std::vector<std::string> names{};  // how a file's name may end (".md"); empty: all files
  std::int64_t largest_file_bytes = std::int64_t{256} << 20;  // larger files are left out
};

// The choice for the course's own tree: its prose, which is handouts and documents. It reads as
// English, and changes less than sources do. Code in fences and tables stay: they are a part of it.
CorpusOptions course_prose();

// A text in two parts that have no byte in common. Every tenth block of 1 KiB (blocks 9, 19, ...)
// is for validation, so that both parts resemble the whole; of a text of less than 10 KiB it is the
// last tenth.
struct Corpus {
  static constexpr std::int64_t kBlockBytes = 1024;
  static constexpr std::int64_t kValidationEvery = 10;

  std::vector<std::uint8_t> training;
  std::vector<std::uint8_t> validation;
  std::int64_t files = 0;    // that the text consists of
  std::int64_t skipped = 0;  // that the folder holds besides: other names, too large, not text
  std::uint64_t hash = 0;    // of the whole text: equal where two runs saw the same
};

// Reads `path`. A file is taken as it is. The files of a folder come in the order of their paths,
// compared byte by byte, so every machine reads the same text; before each stands a line with its
// path, "// ==== common/core/tensor.h ====", so that a model can see where files begin.
// Throws Error: the path does not exist, is neither file nor folder, is unreadable or holds no
// text.
Corpus read_corpus(const std::string& path, const CorpusOptions& options = {});

// The rule above, for a text at hand: files is 1.
Corpus split_text(std::span<const std::uint8_t> text);

// True for UTF-8 without NUL bytes.
bool is_text(std::span<const std::uint8_t> bytes);

}  // namespace aisc
