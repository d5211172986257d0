// What BERT has to guess: words that are hidden from it (Devlin et al., arXiv 1810.04805, section
// 3.1, task 1, and appendix A.1).
//
// A word that is to be guessed must not be seen, so [MASK] stands in its place. But in the texts
// that the model meets later there is no [MASK]. So one in ten stays what it is, and one in ten
// becomes another word: then the model cannot know which words it is asked for, and has to keep an
// opinion of each.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "12_encoders/special_ids.h"

namespace aisc {

// How many of `words` words are to be guessed: 15 %, rounded (a half up), at least 1, at most
// `most` and at most all.
std::int64_t masked_count(std::int64_t words, std::int64_t most);
// K, the most that a sample of T tokens has room for: 15 % of T, rounded, at least 1.
std::int64_t most_masked(std::int64_t T);
// How many of the tokens are words, which is what can be masked.
std::int64_t count_words(std::span<const std::int32_t> tokens, const SpecialIds& special);

// What is drawn for one place of a sample, whatever stands there.
struct PlaceDraw {
  std::uint64_t order = 0;  // the words with the smallest ones are to be guessed
  double fate = 0;          // in [0, 1): below .8 [MASK], below .9 any word, else it stays
  double word = 0;          // in [0, 1): which word
};

// The draws of places 0 .. count - 1 of a sample: each a pure function of the seed, the sample's
// index in the whole run and the place. So all layouts of ranks and micro-batches mask alike, and a
// run that goes on masks as one that was never interrupted.
std::vector<PlaceDraw> place_draws(std::uint64_t seed, std::int64_t sample, std::int64_t count);

struct Masking {
  SpecialIds special = {};
  std::int64_t vocabulary = 0;  // ids are below
  std::int64_t most = 0;        // K
};

// `draw` in [0, 1) as one of the vocabulary's words, special tokens left out; all are as likely.
std::int32_t word_of(double draw, const Masking& masking);

struct MaskedWords {
  std::vector<std::int32_t> places;   // ascending
  std::vector<std::int32_t> targets;  // what stood there
};

// Hides masked_count() of the words among `tokens`, none twice, and says what they were.
//
// Six tokens [CLS] 10 11 [SEP] 12 [SEP] have three words, and .45 of them to be guessed is at least
// 1. Places 1, 2 and 4 have orders 7, 3 and 9: it is place 2. At a fate of .5 [MASK] stands there
// then, and the target is 11.
// Throws Error: draws are not as many as tokens.
MaskedWords mask_words(std::span<std::int32_t> tokens, std::span<const PlaceDraw> draws,
                       const Masking& masking);

}  // namespace aisc
