// What BERT learns of texts that belong together: is the second one how the first goes on, or is it
// from elsewhere (Devlin et al., arXiv 1810.04805, section 3.1, task 2, and appendix A.2; the rules
// are those of create_pretraining_data.py, which the authors published)?
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "12_encoders/padded_batch.h"
#include "12_encoders/special_ids.h"
#include "formats/sentences.h"

namespace aisc {

// The least that a sample has room for: [CLS], two texts of a few tokens, two [SEP].
inline constexpr std::int64_t kLeastPairTokens = 8;

// What is drawn for one sample; numbers are in [0, 1). A number u chooses among n things the one
// with index floor(u n).
struct PairDraws {
  double start = 0;    // with which neighbours A begins
  double shorter = 0;  // below .1: a shorter target than all the room,
  double target = 0;   // which is one of 2 .. room
  double split = 0;    // how many sentences are A
  double label = 0;    // below .5: B follows A
  double other = 0;    // if not, behind the first of which neighbours elsewhere B begins
  // Of the k-th token that is cut off: does its text lose the first one, or the last?
  std::function<bool(std::int64_t k)> cut_first = {};
};

// Of sample `sample` in the whole run: a pure function of the seed and this index.
PairDraws pair_draws(std::uint64_t seed, std::int64_t sample);

// Texts A and B, as tokens. Views: Documents own them.
struct SentencePair {
  std::span<const std::int32_t> a, b;
  std::int32_t label = 0;  // 0: B follows A; 1: it does not
};

// Cuts tokens off, one after the other, until both texts have at most `room`: each time off the
// longer one (of equals off B), at the end that `cut_first` says.
void truncate_pair(SentencePair& pair, std::int64_t room,
                   const std::function<bool(std::int64_t k)>& cut_first);

// A pair that fits into T tokens with [CLS], [SEP] and [SEP]: the room for both texts is T - 3.
//
// A chunk begins with a pair of neighbours, and goes on, sentence by sentence, until it has as many
// tokens as the target says, or its stretch ends. A is one or more sentences at its beginning, and
// at least one is left. If B follows A, it is what is left. If not, it begins with the second of
// two neighbours of another document, and goes on until A and B have as many tokens as the target,
// or that stretch ends. (The second one: what begins a stretch never follows anything, so a model
// could know it by that.) Both are cut to the room then. As in the original, a B that does not
// follow is a little longer where stretches are short: A's has ended, and another one has not.
//
// Sentences of 4, 3, 5 and 6 tokens, target 10: the chunk is the first three. At a split of .5 A is
// 1 + floor(.5 * 2) = 2 sentences, 7 tokens, and B the third.
SentencePair sentence_pair(const Documents& documents, std::int64_t T, const PairDraws& draws);

// [CLS] A [SEP] B [SEP] with its segments and label; no word is masked yet.
MaskedPair joined(const SentencePair& pair, const SpecialIds& special);

}  // namespace aisc
