// Text cut into words before its bytes are merged (GPT-2, Radford et al., 2019, section 2.2), so
// that no token reaches across the border of two words. A word is what the alternatives
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// match next: a run of letters, of numbers or of other signs, each with one space before it; an
// English ending; spaces, of which the last is left to the word that follows.
#pragma once

#include <cstddef>
#include <string_view>

namespace aisc {

// The length in bytes of the first word of `text`; 0 only if there is no text. The words together
// are the text. A byte that belongs to no valid UTF-8 sequence counts as a sign. Looks at no more
// than the word and the character after it.
std::size_t first_word(std::string_view text);

// Whether the words of `text` are those of text[0, at) and then those of text[at, end), however
// they go on: a place at which ranks may cut. True at both ends; inside it holds before a character
// of another kind (letter, number, space, sign) than the one before it, if that one is neither a
// space nor an apostrophe. It is false at some ends of words, too: who asks takes the next place.
bool is_border(std::string_view text, std::size_t at);

}  // namespace aisc
