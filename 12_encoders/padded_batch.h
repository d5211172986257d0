// Samples of different lengths in one batch. A batch is a rectangle, so shorter samples are filled
// up with padding: tokens that no other token may look at (Batch::lengths), and that no loss counts
// (targets of -1). Then a sample's loss and gradients are the same whatever stands beside it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/data/batches.h"

namespace aisc {

// What BERT learns from: two texts of n tokens together, m of which are to be guessed.
struct MaskedPair {
  std::vector<std::int32_t> tokens;  // n: [CLS] A [SEP] B [SEP], with [MASK] where a word is hidden
  std::vector<std::int32_t> segments;  // n: 0 up to the first [SEP], then 1
  std::vector<std::int32_t> places;    // m: of the masked words in `tokens`, ascending
  std::vector<std::int32_t> targets;   // m: the words that were there
  std::int32_t label = 0;              // 0: B follows A; 1: it does not
};

// These B samples, each in T tokens with at most K masked words:
//
//   tokens   (B, T)     a sample's own, then `pad`
//   lengths  (B)        how many are its own
//   segments (B, T)     0 for padding
//   picked   (B + B K)  the places b T + t that have a target: first [CLS] of each sample, then K
//                       places of masked words a sample; B T where it has fewer
//   targets  (B + B K)  for each of them: first the labels, then the words; -1 where there is none
//   terms               how many words are masked, in all samples together
//
// Throws Error: a sample of no token, of more than T, or of more than K masked words; segments,
// places and targets that do not fit to the tokens.
Batch pad_masked_pairs(Device& device, std::span<const MaskedPair> samples, std::int64_t T,
                       std::int64_t K, std::int32_t pad);

// Which tokens a translation model has beside words.
struct PairIds {
  std::int32_t begin = 0, end = 0, pad = 0;
};

// B texts and their translations, in at most S and T tokens:
//
//   tokens  (B, S)  a source, then `pad`
//   lengths (B)     how many are its own
//   decoder (B, T)  begin, the translation, then `pad`
//   targets (B, T)  the translation, end, then -1: of each place of `decoder`, what comes next
//   terms           how many targets there are: a translation's tokens and its end
//
// Throws Error: not as many translations as sources, a source of no token or of more than S, a
// translation of more than T - 1.
Batch pad_pairs(Device& device, std::span<const std::vector<std::int32_t>> sources,
                std::span<const std::vector<std::int32_t>> translations, const PairIds& ids,
                std::int64_t S, std::int64_t T);

}  // namespace aisc
