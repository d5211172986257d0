#include "common/data/corpus.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

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

bool is_wanted(const std::string& name, const CorpusOptions& options) {
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
    } else if (is_wanted(name, options)) {
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

// Why a file is not read at all; "": it is.
std::string why_unread(const fs::path& path, const CorpusOptions& options) {
  std::error_code unreadable;  // a link that leads nowhere, or in a circle
  if (!fs::is_regular_file(path, unreadable)) return "not a file";
  const auto size = static_cast<std::int64_t>(fs::file_size(path));
  if (size <= options.largest_file_bytes) return "";
  return fmt::format("{} bytes, more than {}", size, options.largest_file_bytes);
}

// Appends the files to `text`, notes where each but the first begins, and counts them in `corpus`.
void read_folder(const std::string& folder, const CorpusOptions& options, Text& text,
                 std::vector<std::int64_t>& seams, Corpus& corpus) {
  Found found;
  find_files(folder, "", options, found);
  std::sort(found.paths.begin(), found.paths.end());
  corpus.skipped = found.skipped;
  for (const std::string& path : found.paths) {
    const fs::path whole = fs::path(folder) / path;
    std::string why = why_unread(whole, options);
    const std::string file = why.empty() ? read_file(whole.string()) : "";
    if (why.empty()) why = why_no_text(bytes_of(file));
    if (!why.empty()) {
      corpus.left_out.push_back(path + ": " + why);
      continue;
    }
    if (corpus.files > 0) seams.push_back(std::ssize(text));
    append(text, "// ==== " + path + " ====\n");
    append(text, file);
    if (!file.ends_with('\n')) text.push_back('\n');
    ++corpus.files;
  }
  if (corpus.files == 0)
    fail(fmt::format("corpus {}: the folder holds no text file: found {} with other names{}{}",
                     folder, corpus.skipped, corpus.left_out.empty() ? "" : "; ",
                     left_out_remark(corpus)));
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
  std::vector<std::int64_t> seams;
  Corpus found;
  if (fs::is_directory(status)) {
    read_folder(path, options, text, seams, found);
  } else if (fs::is_regular_file(status)) {
    append(text, read_file(path));
    found.files = 1;
    const std::string why = why_no_text(text);
    if (!why.empty()) fail(fmt::format("corpus {}: {}, expected text", path, why));
  } else {
    fail(fmt::format("corpus {}: is neither a file nor a folder", path));
  }
  Corpus corpus = split_text(text, seams, options.block_bytes);
  corpus.files = found.files;
  corpus.skipped = found.skipped;
  corpus.left_out = std::move(found.left_out);
  return corpus;
}

Corpus split_text(std::span<const std::uint8_t> text, std::span<const std::int64_t> seams,
                  std::int64_t block_bytes) {
  if (block_bytes < 1)
    fail(fmt::format("corpus: blocks of {} bytes, expected 1 or more", block_bytes));
  Corpus corpus;
  corpus.files = 1;
  corpus.block_bytes = block_bytes;
  corpus.hash = checksum(text);
  auto seam = seams.begin();
  const auto take = [&](Text& part, std::vector<std::int64_t>& part_seams, std::int64_t begin,
                        std::int64_t end) {
    // A seam belongs to the part that has the byte before it.
    for (; seam != seams.end() && *seam <= end; ++seam)
      part_seams.push_back(std::ssize(part) + *seam - begin);
    part.insert(part.end(), text.begin() + begin, text.begin() + end);
  };
  const auto take_training = [&](std::int64_t begin, std::int64_t end) {
    take(corpus.training, corpus.training_seams, begin, end);
  };
  const auto take_validation = [&](std::int64_t begin, std::int64_t end) {
    take(corpus.validation, corpus.validation_seams, begin, end);
  };
  const auto size = static_cast<std::int64_t>(text.size());
  constexpr std::int64_t kEvery = Corpus::kValidationEvery;
  if (size / block_bytes < kEvery) {
    const std::int64_t middle = size - size / kEvery;
    take_training(0, middle);
    take_validation(middle, size);
    return corpus;
  }
  for (std::int64_t i = 0; i * block_bytes < size; ++i) {
    const std::int64_t begin = i * block_bytes, end = std::min(size, begin + block_bytes);
    if (i % kEvery == kEvery - 1)
      take_validation(begin, end);
    else
      take_training(begin, end);
  }
  return corpus;
}

std::string why_no_text(std::span<const std::uint8_t> bytes) {
  if (bytes.empty()) return "empty";
  const auto begins = [&](std::uint8_t a, std::uint8_t b) {
    return bytes.size() >= 2 && bytes[0] == a && bytes[1] == b;
  };
  if (begins(0xff, 0xfe) || begins(0xfe, 0xff))
    return "UTF-16 (iconv -f UTF-16 -t UTF-8 changes it)";
  const auto nul = std::find(bytes.begin(), bytes.end(), 0);
  return nul == bytes.end() ? "" : fmt::format("a NUL at byte {}", nul - bytes.begin());
}

std::string left_out_remark(const Corpus& corpus) {
  constexpr std::size_t kNamed = 3;
  const std::size_t count = corpus.left_out.size(), named = std::min(count, kNamed);
  if (count == 0) return "";
  return fmt::format("{} file{} left out, being no text: {}{}", count, count == 1 ? " is" : "s are",
                     fmt::join(corpus.left_out.begin(),
                               corpus.left_out.begin() + static_cast<std::ptrdiff_t>(named), "; "),
                     count > named ? "; ..." : "");
}

}  // namespace aisc
