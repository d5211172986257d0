#include <algorithm>
#include <cctype>

#include "formats/sentences.h"

namespace aisc {
namespace {

constexpr std::string_view kSpaces = " \t\r";

bool is_one_of(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_capital(char c) { return c >= 'A' && c <= 'Z'; }
// Bytes of UTF-8 beyond ASCII count as letters.
bool says_something(std::string_view text) {
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) || (c & 0x80)) return true;
  return false;
}

std::string_view trimmed(std::string_view line) {
  const std::size_t first = line.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return line.substr(0, 0);
  return line.substr(first, line.find_last_not_of(kSpaces) - first + 1);
}

// How many characters mark an item of a list: "- ", "12. "; 0: it is none.
std::size_t list_mark(std::string_view line) {
  std::size_t n = 0;
  while (n < line.size() && is_digit(line[n])) ++n;
  const bool numbered = n > 0 && n < line.size() && is_one_of(line[n], ".)");
  const bool dotted = n == 0 && !line.empty() && is_one_of(line[0], "-*+");
  if (!numbered && !dotted) return 0;
  return n + 1 < line.size() && line[n + 1] == ' ' ? n + 2 : 0;
}

std::size_t heading_mark(std::string_view line) {
  const std::size_t n = std::min(line.find_first_not_of('#'), line.size());
  return n > 0 && n < line.size() && line[n] == ' ' ? n + 1 : 0;
}

// Does a sentence end with character i of the line? Then behind those that close with it: their
// number; else 0.
std::size_t sentence_end(std::string_view line, std::size_t i) {
  if (!is_one_of(line[i], ".!?")) return 0;
  const std::size_t behind = std::min(line.find_first_not_of("\"')]*_`", i + 1), line.size());
  if (behind == line.size()) return behind;
  if (line[behind] != ' ') return 0;
  const std::size_t next = line.find_first_not_of(" \"'([*_`", behind);
  return next != std::string_view::npos && is_capital(line[next]) ? behind : 0;
}

// Puts sentences together, which may go on in the next line.
class SentenceReader {
 public:
  std::vector<std::string_view> take() && {
    end();
    return std::move(found_);
  }

  void read(std::string_view line) {
    line = trimmed(line);
    while (line.starts_with('>')) line = trimmed(line.substr(1));  // a quotation
    if (line.starts_with("```") || line.starts_with("~~~")) {
      end();
      is_code_ = !is_code_;
    } else if (is_code_) {
      return;
    } else if (line.empty() || line.starts_with('<')) {
      end();
    } else if (line.starts_with('|') || heading_mark(line) > 0) {
      end();
      sentence_ = line.substr(heading_mark(line));
      end();
    } else {
      if (list_mark(line) > 0) end();
      read_prose(trimmed(line.substr(list_mark(line))));
    }
  }

 private:
  void read_prose(std::string_view line) {
    std::size_t begin = 0;
    for (std::size_t i = 0; i < line.size(); ++i)
      if (const std::size_t behind = sentence_end(line, i); behind > 0) {
        add(line.substr(begin, behind - begin));
        end();
        begin = std::min(line.find_first_not_of(kSpaces, behind), line.size());
        i = behind - 1;
      }
    if (begin < line.size()) add(line.substr(begin));
  }
  // `part` lies behind the sentence so far, in the same text.
  void add(std::string_view part) {
    if (sentence_.empty())
      sentence_ = part;
    else
      sentence_ = {sentence_.data(),
                   static_cast<std::size_t>(part.data() + part.size() - sentence_.data())};
  }
  void end() {
    if (says_something(sentence_)) found_.push_back(sentence_);
    sentence_ = {};
  }

  std::vector<std::string_view> found_;
  std::string_view sentence_;
  bool is_code_ = false;
};

}  // namespace

std::vector<std::string_view> split_sentences(std::string_view text) {
  SentenceReader reader;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    reader.read(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return std::move(reader).take();
}

}  // namespace aisc
