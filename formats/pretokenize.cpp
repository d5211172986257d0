#include "formats/pretokenize.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace aisc {
namespace {

enum class Kind : std::uint8_t { Letter, Number, Space, Sign };

struct Character {
  Kind kind;
  std::size_t bytes;
};

constexpr Kind kind_of_ascii(unsigned char c) {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return Kind::Letter;
  if (c >= '0' && c <= '9') return Kind::Number;
  return c == ' ' || (c >= '\t' && c <= '\r') ? Kind::Space : Kind::Sign;
}

constexpr std::array<Kind, 128> make_ascii() {
  std::array<Kind, 128> kinds{};
  for (std::size_t c = 0; c < kinds.size(); ++c)
    kinds[c] = kind_of_ascii(static_cast<unsigned char>(c));
  return kinds;
}

constexpr std::array<Kind, 128> kAscii = make_ascii();

Kind kind_of(utf8proc_int32_t character) {
  switch (utf8proc_category(character)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return Kind::Letter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return Kind::Number;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return Kind::Space;
    default:
      return character == 0x85 ? Kind::Space : Kind::Sign;  // next line: a control, yet a space
  }
}

// The character that begins at byte i of `text`.
Character character_at(std::string_view text, std::size_t i) {
  const auto lead = static_cast<unsigned char>(text[i]);
  if (lead < 0x80) return {kAscii[lead], 1};
  // At most four bytes are of interest, and the length's type is signed.
  const std::string_view rest = text.substr(i, 4);
  utf8proc_int32_t character = 0;
  const utf8proc_ssize_t bytes =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(rest.data()),
                       static_cast<utf8proc_ssize_t>(rest.size()), &character);
  if (bytes <= 0) return {Kind::Sign, 1};
  return {kind_of(character), static_cast<std::size_t>(bytes)};
}

// The length of the ending ('s, 're, ...) that `text` begins with, or 0.
std::size_t english_ending(std::string_view text) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  switch (text[1]) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return text.size() > 2 && text[2] == 'e' ? 3 : 0;
    case 'l':
      return text.size() > 2 && text[2] == 'l' ? 3 : 0;
    default:
      return 0;
  }
}

// Spaces go together but for the last, which is left to the word after them.
std::size_t spaces(std::string_view text) {
  std::size_t end = 0, last = 0;
  while (end < text.size()) {
    const Character c = character_at(text, end);
    if (c.kind != Kind::Space) return last == 0 ? end : last;
    last = end;
    end += c.bytes;
  }
  return end;
}

// The character that ends before byte `end` > 0. UTF-8 says by itself where a character begins: no
// valid sequence has the first byte of another one inside, so one that ends here is the one that
// reading from the text's beginning finds. Without one the last byte stands alone.
Character character_before(std::string_view text, std::size_t end) {
  for (std::size_t bytes = std::min<std::size_t>(end, 4); bytes > 1; --bytes)
    if (const Character c = character_at(text.substr(0, end), end - bytes); c.bytes == bytes)
      return c;
  return character_at(text.substr(0, end), end - 1);
}

}  // namespace

std::size_t first_word(std::string_view text) {
  if (text.empty()) return 0;
  if (const std::size_t ending = english_ending(text)) return ending;
  std::size_t end = text[0] == ' ' && text.size() > 1 ? 1 : 0;
  const Character first = character_at(text, end);
  if (first.kind == Kind::Space) return spaces(text);
  end += first.bytes;
  while (end < text.size()) {
    const Character c = character_at(text, end);
    if (c.kind != first.kind) break;
    end += c.bytes;
  }
  return end;
}

// Two neighbours of different kinds are in one word in two cases alone: a space before a run, and
// the apostrophe before the letters of an English ending. Without these, a word ends between them.
// Then the words before `at` do not ask what follows: a run ends there as it does at the end of a
// text, and a last "'r" is not followed by the letter that would make it "'re". A space could ask,
// but is not the last. The words behind `at` depend on nothing before them.
// "it's 1: a" may be cut before "'s", " 1", ":" and " a". In the middle of a character both sides
// are bytes that begin and end none: signs, which are of one kind.
bool is_border(std::string_view text, std::size_t at) {
  if (at == 0 || at >= text.size()) return true;
  const Character before = character_before(text, at);
  return before.kind != Kind::Space && text[at - 1] != '\'' &&
         before.kind != character_at(text, at).kind;
}

}  // namespace aisc
