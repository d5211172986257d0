#include "formats/wordpiece_words.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

namespace aisc {
namespace {

using CodePoint = utf8proc_int32_t;

constexpr CodePoint kCapitalIWithDot = 0x130;  // the one whose lower case has two characters
constexpr CodePoint kDotAbove = 0x307;
constexpr CodePoint kReplacement = 0xFFFD;

bool is_ascii_sign(CodePoint c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}

bool is_white_space(CodePoint c) {
  if (c < 0x80) return c == ' ' || c == '\t' || c == '\n' || c == '\r';
  const utf8proc_category_t category = utf8proc_category(c);
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP;
}

// The caller has seen to white space, some of which is control.
bool is_left_out(CodePoint c) {
  if (c == 0 || c == kReplacement) return true;
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
      return true;
    default:
      return false;
  }
}

bool is_punctuation(CodePoint c) {
  if (c < 0x80) return is_ascii_sign(c);
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return true;
    default:
      return false;
  }
}

// The blocks that BERT lists. Hiragana, katakana and hangul are not among them: those scripts
// make words.
bool is_ideograph(CodePoint c) {
  struct Block {
    CodePoint first, last;
  };
  constexpr Block kBlocks[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                               {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F},
                               {0x2B820, 0x2CEAF}, {0x2F800, 0x2FA1F}};
  return std::any_of(std::begin(kBlocks), std::end(kBlocks),
                     [c](const Block& block) { return c >= block.first && c <= block.last; });
}

class WordCutter {
 public:
  WordCutter(const WordRules& rules, const std::function<void(std::string_view)>& word)
      : rules_(rules), give_(word) {}

  // A character of the text, as it stands there.
  void take(CodePoint c) {
    if (is_white_space(c)) return end_word();
    if (is_left_out(c)) return;
    const bool alone = rules_.split_ideographs && is_ideograph(c);
    if (alone) end_word();
    if (rules_.strip_accents && c >= 0x80)
      take_apart(c);
    else
      add(c);
    if (alone) end_word();
  }

  void end_word() {
    if (word_.empty()) return;
    give_(word_);
    word_.clear();
  }

 private:
  // No character decomposes into more than four.
  void take_apart(CodePoint c) {
    std::array<CodePoint, 8> parts{};
    int boundary = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(c, parts.data(), static_cast<utf8proc_ssize_t>(parts.size()),
                                UTF8PROC_DECOMPOSE, &boundary);
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
      const CodePoint part = parts[static_cast<std::size_t>(i)];
      if (utf8proc_category(part) != UTF8PROC_CATEGORY_MN) add(part);
    }
  }

  void add(CodePoint c) {
    if (rules_.lower_case && c == kCapitalIWithDot) {
      append('i');
      c = kDotAbove;
    } else if (rules_.lower_case) {
      c = utf8proc_tolower(c);
    }
    if (!is_punctuation(c)) return append(c);
    end_word();
    append(c);
    end_word();
  }

  void append(CodePoint c) {
    std::array<utf8proc_uint8_t, 4> bytes{};
    const utf8proc_ssize_t count = utf8proc_encode_char(c, bytes.data());
    word_.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(count));
  }

  const WordRules rules_;
  const std::function<void(std::string_view)>& give_;
  std::string word_;
};

}  // namespace

void for_each_word(std::string_view text, const WordRules& rules,
                   const std::function<void(std::string_view)>& word) {
  WordCutter cutter(rules, word);
  while (!text.empty()) {
    // At most four bytes are of interest, and the length's type is signed.
    const std::string_view next = text.substr(0, 4);
    CodePoint c = kReplacement;
    const utf8proc_ssize_t bytes =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(next.data()),
                         static_cast<utf8proc_ssize_t>(next.size()), &c);
    cutter.take(bytes > 0 ? c : kReplacement);
    text.remove_prefix(bytes > 0 ? static_cast<std::size_t>(bytes) : 1);
  }
  cutter.end_word();
}

std::size_t characters_of(std::string_view word) {
  return static_cast<std::size_t>(std::count_if(word.begin(), word.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

}  // namespace aisc
