#include "12_encoders/more/paragraphs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "common/core/error.h"
#include "common/core/range.h"
#include "common/core/system/files.h"

namespace aisc {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kHeldOutOf = 5;

bool is_digit_byte(char c) { return c >= '0' && c <= '9'; }

// "[text](target)" becomes "text".
std::string without_targets(std::string_view source) {
  std::string text;
  for (std::size_t i = 0; i < source.size(); ++i) {
    const std::size_t close = source[i] == '[' ? source.find(']', i) : std::string_view::npos;
    const bool link = close != std::string_view::npos && source.substr(close + 1).starts_with('(');
    const std::size_t end = link ? source.find(')', close) : std::string_view::npos;
    if (end == std::string_view::npos) {
      text += source[i];
    } else {
      text += source.substr(i + 1, close - i - 1);
      i = end;
    }
  }
  return text;
}

struct JoinedWords {
  std::string text;
  std::int64_t count = 0;
};
JoinedWords words_without_digits(std::string_view text) {
  JoinedWords words;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find_first_of(" \t\r\n", begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    if (!word.empty() && std::none_of(word.begin(), word.end(), is_digit_byte)) {
      if (words.count++ > 0) words.text += ' ';
      words.text += word;
    }
    begin = end + 1;
  }
  return words;
}

bool begins_item(std::string_view line) {
  const std::size_t behind =
      std::min(line.find_first_not_of(is_digit_byte(line[0]) ? "0123456789" : "-*+"), line.size());
  const bool numbered = is_digit_byte(line[0]) && line.substr(behind).starts_with(". ");
  return numbered || (behind == 1 && line.substr(1).starts_with(' '));
}

// Puts lines together.
class ParagraphReader {
 public:
  std::vector<Paragraph> take() && {
    end();
    return std::move(found_);
  }

  void read(std::string_view line) {
    const std::size_t first = line.find_first_not_of(" \t\r");
    const std::string_view from_first = first == std::string_view::npos ? "" : line.substr(first);
    const bool fence = from_first.starts_with("```") || from_first.starts_with("~~~");
    if (fence) is_code_ = !is_code_;
    if (fence || is_code_ || from_first.empty() ||
        std::string_view("#|<>").find(from_first[0]) != std::string_view::npos)
      return end();
    if (begins_item(from_first)) end();
    if (!source_.empty()) source_ += '\n';
    source_ += line;
  }

 private:
  void end() {
    JoinedWords words = words_without_digits(without_targets(source_));
    if (words.count >= kLeastParagraphWords)
      found_.push_back({std::move(words.text), std::move(source_)});
    source_.clear();
  }

  std::vector<Paragraph> found_;
  std::string source_;
  bool is_code_ = false;
};

std::vector<std::string> module_folders(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code reason;
  for (fs::directory_iterator entry(folder, reason), end; !reason && entry != end;
       entry.increment(reason)) {
    const std::string name = entry->path().filename().string();
    if (name.size() > 3 && is_digit_byte(name[0]) && is_digit_byte(name[1]) && name[2] == '_')
      names.push_back(name);
  }
  if (reason)
    fail(fmt::format("paragraphs: folder {} cannot be read: {}", folder, reason.message()));
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<Paragraph> paragraphs_of_module(const fs::path& module) {
  std::vector<Paragraph> all;
  for (const char* name : {"README.md", "more.md"}) {
    if (!fs::exists(module / name)) continue;
    for (Paragraph& paragraph : split_paragraphs(read_file((module / name).string())))
      all.push_back(std::move(paragraph));
  }
  return all;
}

}  // namespace

std::vector<Paragraph> split_paragraphs(std::string_view handout) {
  ParagraphReader reader;
  for (std::size_t begin = 0; begin < handout.size();) {
    const std::size_t end = std::min(handout.find('\n', begin), handout.size());
    reader.read(handout.substr(begin, end - begin));
    begin = end + 1;
  }
  return std::move(reader).take();
}

bool is_held_out(std::string_view paragraph) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(paragraph.data());
  return checksum({bytes, paragraph.size()}) % kHeldOutOf == 0;
}

ParagraphParts course_paragraphs(const std::string& folder) {
  ParagraphParts parts;
  std::vector<Paragraph> all;
  std::map<std::string, int> times;
  for (const std::string& module : module_folders(folder)) {
    std::vector<Paragraph> its = paragraphs_of_module(fs::path(folder) / module);
    if (its.empty()) continue;
    for (Paragraph& paragraph : its) {
      paragraph.label = static_cast<std::int32_t>(parts.modules.size());
      ++times[paragraph.text];
      all.push_back(std::move(paragraph));
    }
    parts.modules.push_back(module);
  }
  if (parts.modules.size() < 2)
    fail(
        fmt::format("paragraphs: {} has {} modules (NN_*/README.md, more.md) with paragraphs of {} "
                    "words, expected two or more",
                    folder, parts.modules.size(), kLeastParagraphWords));
  for (Paragraph& paragraph : all)
    if (times[paragraph.text] == 1)
      (is_held_out(paragraph.text) ? parts.held_out : parts.training)
          .push_back(std::move(paragraph));
  return parts;
}

std::vector<Document> without_paragraphs(std::span<const Document> documents,
                                         std::span<const Paragraph> paragraphs) {
  std::set<std::string, std::less<>> hidden;
  for (const Paragraph& paragraph : paragraphs)
    for (const std::string_view sentence : split_sentences(paragraph.source))
      hidden.emplace(sentence);
  std::vector<Document> without;
  for (const Document& document : documents) {
    Document& kept = without.emplace_back();
    for (const Stretch& stretch : document) {
      kept.emplace_back();
      for (const std::string& sentence : stretch) {
        if (!hidden.contains(sentence))
          kept.back().push_back(sentence);
        else if (!kept.back().empty())
          kept.emplace_back();
      }
      if (kept.back().empty()) kept.pop_back();
    }
    if (kept.empty()) without.pop_back();
  }
  return without;
}

}  // namespace aisc
