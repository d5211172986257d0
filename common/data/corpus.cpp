#include "common/data/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "common/core/error.h"
#include "common/core/system/files.h"

namespace aisc {
namespace {

namespace fs = std::filesystem;

using Text = std::vector<std::uint8_t>;

struct Found {
  std::vector<std::string> paths;  // relative to the folder
  std::int64_t skipped = 0;
};

bool is_wanted(const fs::directory_entry& entry, const CorpusOptions& options) {
  std::error_code unreadable;  // a link that leads nowhere, or in a circle
  if (!entry.is_regular_file(unreadable)) return false;
  if (static_cast<std::int64_t>(entry.file_size()) > options.largest_file_bytes) return false;
  const std::string name = entry.path().filename().string();
  return options.names.empty() ||
         std::any_of(options.names.begin(), options.names.end(),
                     [&](const std::string& end) { return name.ends_with(end); });
}

bool is_left_out(const std::string& name, bool is_folder) {
  return name.starts_with('.') || (is_folder && (name == "build" || name == "runs"));
}

// Adds the files below `folder`, whose path inside the corpus is `prefix` ("" or "common/core/").
void find_files(const fs::path& folder, const std::string& prefix, const CorpusOptions& options,
                Found& found) {
  std::error_code reason;
  auto entry = fs::directory_iterator(folder, reason);
  for (; !reason && entry != fs::directory_iterator(); entry.increment(reason)) {
    const std::string name = entry->path().filename().string();
    std::error_code unreadable;
    const bool is_folder = entry->is_directory(unreadable);
    if (is_left_out(name, is_folder)) continue;
    if (is_folder && fs::exists(entry->path() / "metrics.jsonl", unreadable)) continue;
    if (is_folder) {
      if (!entry->is_symlink()) find_files(entry->path(), prefix + name + "/", options, found);
    } else if (is_wanted(*entry, options)) {
      found.paths.push_back(prefix + name);
    } else {
      ++found.skipped;
    }
  }
  if (reason)
    fail(fmt::format("corpus: folder {} cannot be read: {}", folder.string(), reason.message()));
}

std::span<const std::uint8_t> bytes_of(const std::string& s) {
  return {reinterpret_cast<const std::uint8_t*>(s.data()), s.size()};
}

void append(Text& text, const std::string& s) {
  const auto bytes = bytes_of(s);
  text.insert(text.end(), bytes.begin(), bytes.end());
}

// Appends the files to `text` and counts them in `corpus`.
void read_folder(const std::string& folder, const CorpusOptions& options, Text& text,
                 Corpus& corpus) {
  Found found;
  find_files(folder, "", options, found);
  std::sort(found.paths.begin(), found.paths.end());
  corpus.skipped = found.skipped;
  for (const std::string& path : found.paths) {
    const std::string file = read_file((fs::path(folder) / path).string());
    if (file.empty() || !is_text(bytes_of(file))) {
      ++corpus.skipped;
      continue;
    }
    append(text, "// ==== " + path + " ====\n");
    append(text, file);
    if (!file.ends_with('\n')) text.push_back('\n');
    ++corpus.files;
  }
  if (corpus.files == 0)
    fail(fmt::format(
        "corpus {}: the folder holds no text file: found 0 suitable files and {} others, "
        "expected files of UTF-8 text",
        folder, corpus.skipped));
}

// The length of the UTF-8 sequence that begins with `lead`, 0 if none does.
std::size_t sequence_length(std::uint8_t lead) {
  if (lead < 0x80) return lead == 0 ? 0 : 1;
  if (lead < 0xc2) return 0;  // a continuation, or an overlong form of ASCII
  if (lead < 0xe0) return 2;
  if (lead < 0xf0) return 3;
  return lead < 0xf5 ? 4 : 0;
}

// The second byte has a narrower range after four leads: overlong forms, surrogates, above
// U+10FFFF.
bool is_second(std::uint8_t lead, std::uint8_t byte) {
  const std::uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const std::uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  return byte >= low && byte <= high;
}

}  // namespace

CorpusOptions course_prose() {
  return {.names = {".md"}, .largest_file_bytes = std::int64_t{1} << 20};
}

Corpus read_corpus(const std::string& path, const CorpusOptions& options) {
  std::error_code reason;
  const fs::file_status status = fs::status(path, reason);
  if (status.type() == fs::file_type::not_found)
    fail(fmt::format("corpus {}: does not exist, expected a text file or a folder", path));
  if (status.type() == fs::file_type::none)
    fail(fmt::format("corpus {}: cannot be read: {}", path, reason.message()));
  Text text;
  Corpus found;
  if (fs::is_directory(status)) {
    read_folder(path, options, text, found);
  } else if (fs::is_regular_file(status)) {
    append(text, read_file(path));
    found.files = 1;
    if (text.empty())
      fail(fmt::format("corpus {}: the file is empty: found 0 bytes, expected text", path));
  } else {
    fail(fmt::format("corpus {}: is neither a file nor a folder", path));
  }
  Corpus corpus = split_text(text);
  corpus.files = found.files;
  corpus.skipped = found.skipped;
  return corpus;
}

Corpus split_text(std::span<const std::uint8_t> text) {
  Corpus corpus;
  corpus.files = 1;
  corpus.hash = checksum(text);
  const auto take = [&](Text& part, std::int64_t begin, std::int64_t end) {
    part.insert(part.end(), text.begin() + begin, text.begin() + end);
  };
  const auto size = static_cast<std::int64_t>(text.size());
  constexpr std::int64_t kBlock = Corpus::kBlockBytes, kEvery = Corpus::kValidationEvery;
  if (size < kEvery * kBlock) {
    const std::int64_t seam = size - size / kEvery;
    take(corpus.training, 0, seam);
    take(corpus.validation, seam, size);
    return corpus;
  }
  for (std::int64_t i = 0; i * kBlock < size; ++i)
    take(i % kEvery == kEvery - 1 ? corpus.validation : corpus.training, i * kBlock,
         std::min(size, (i + 1) * kBlock));
  return corpus;
}

bool is_text(std::span<const std::uint8_t> bytes) {
  for (std::size_t i = 0; i < bytes.size();) {
    const std::size_t length = sequence_length(bytes[i]);
    if (length == 0 || i + length > bytes.size()) return false;
    if (length > 1 && !is_second(bytes[i], bytes[i + 1])) return false;
    for (std::size_t k = 2; k < length; ++k)
      if (bytes[i + k] < 0x80 || bytes[i + k] > 0xbf) return false;
    i += length;
  }
  return true;
}

}  // namespace aisc
