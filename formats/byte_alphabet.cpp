#include "formats/byte_alphabet.h"

#include <cstddef>

namespace aisc {
namespace {

constexpr std::uint16_t kFirstOther = 0x100;  // of the characters for bytes that do not print
constexpr std::size_t kCharacters = 0x144;    // all lie below

constexpr bool prints(std::size_t byte) {
  return (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
}

struct Alphabet {
  std::array<std::uint16_t, 256> characters{};    // by byte
  std::array<std::int16_t, kCharacters> bytes{};  // by character; -1: none
  std::array<std::uint8_t, 256> order{};          // bytes by their characters
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  std::uint16_t other = kFirstOther;
  for (std::size_t b = 0; b < 256; ++b)
    alphabet.characters[b] = prints(b) ? static_cast<std::uint16_t>(b) : other++;
  for (auto& byte : alphabet.bytes) byte = -1;
  for (std::size_t b = 0; b < 256; ++b)
    alphabet.bytes[alphabet.characters[b]] = static_cast<std::int16_t>(b);
  std::size_t next = 0;
  for (const std::int16_t byte : alphabet.bytes)
    if (byte >= 0) alphabet.order[next++] = static_cast<std::uint8_t>(byte);
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

const std::array<std::uint8_t, 256>& bytes_in_alphabet_order() { return kAlphabet.order; }

std::string to_alphabet(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    const std::uint16_t c = kAlphabet.characters[static_cast<unsigned char>(byte)];
    if (c < 0x80) {
      text.push_back(static_cast<char>(c));
    } else {  // all are below U+0800: two bytes of UTF-8
      text.push_back(static_cast<char>(0xc0 | (c >> 6)));
      text.push_back(static_cast<char>(0x80 | (c & 0x3f)));
    }
  }
  return text;
}

std::optional<std::string> from_alphabet(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::size_t c = static_cast<unsigned char>(text[i]);
    if (c >= 0x80) {
      if (c < 0xc2 || c > 0xdf || i + 1 == text.size()) return std::nullopt;
      const std::size_t second = static_cast<unsigned char>(text[++i]);
      if (second < 0x80 || second > 0xbf) return std::nullopt;
      c = (c & 0x1f) << 6 | (second & 0x3f);
    }
    if (c >= kCharacters || kAlphabet.bytes[c] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.bytes[c]));
  }
  return bytes;
}

}  // namespace aisc
