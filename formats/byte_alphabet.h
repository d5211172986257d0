// How GPT-2's files write bytes: each of the 256 as one printable character, so that tokens, which
// are any bytes, can stand in JSON and in lines of text. Printable bytes of Latin-1 are themselves;
// the other 68 are U+0100, U+0101, ... in order ("Ġ" is the space).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace aisc {

// The bytes in the order of their characters, which is the order of GPT-2's first 256 ids.
const std::array<std::uint8_t, 256>& bytes_in_alphabet_order();

std::string to_alphabet(std::string_view bytes);
// Nothing if `text` has a character that stands for no byte.
std::optional<std::string> from_alphabet(std::string_view text);

}  // namespace aisc
