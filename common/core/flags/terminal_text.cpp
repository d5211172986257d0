#include "common/core/flags/terminal_text.h"

#include <utility>

#include "common/core/printable.h"

namespace aisc {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// The bytes of a character that begins with this one; 0: none does.
std::size_t length_of(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;  // C0, C1: too long for what they say
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;  // F5 and more: beyond U+10FFFF
  return 0;
}

// The second bytes that may follow `lead` (table 3-7 of the standard): the others would make
// characters that are too long for what they say, surrogates, or numbers beyond U+10FFFF.
std::pair<unsigned char, unsigned char> second_bytes(unsigned char lead) {
  switch (lead) {
    case 0xE0:
      return {0xA0, 0xBF};
    case 0xED:
      return {0x80, 0x9F};
    case 0xF0:
      return {0x90, 0xBF};
    case 0xF4:
      return {0x80, 0x8F};
    default:
      return {0x80, 0xBF};
  }
}

bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1)
    return (first < 0x20 && first != '\n' && first != '\t') || first == 0x7F;
  return first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;  // C1
}

}  // namespace

void TerminalText::add_byte(unsigned char byte, std::string& out) {
  if (!pending_.empty()) {
    const auto lead = static_cast<unsigned char>(pending_[0]);
    const auto range = pending_.size() == 1 ? second_bytes(lead) : second_bytes(0);
    if (byte >= range.first && byte <= range.second) {
      pending_ += static_cast<char>(byte);
    } else {  // the character ends here, and the byte begins another
      out += finish();
    }
  }
  if (pending_.empty()) {
    length_ = length_of(byte);
    if (length_ == 0) {
      out += kReplacement;
      return;
    }
    pending_ = static_cast<char>(byte);
  }
  if (pending_.size() < length_) return;
  if (!is_control(pending_)) out += pending_;
  pending_.clear();
}

std::string TerminalText::add(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) add_byte(static_cast<unsigned char>(byte), out);
  return out;
}

std::string TerminalText::finish() {
  if (pending_.empty()) return {};
  pending_.clear();
  return kReplacement;
}

std::string for_terminal(std::string_view bytes) {
  TerminalText text;
  const std::string most = text.add(printable(bytes));
  return most + text.finish();
}

}  // namespace aisc
