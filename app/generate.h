// Text from a model: one token after the other, each drawn from what the model expects next.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/nn/driver.h"
#include "common/nn/gpt.h"
#include "common/train/step_parts.h"

namespace aisc {

struct GenerateOptions {
  std::int64_t tokens = 400;      // to generate, at most
  double temperature = 0.8;       // 0: always the likeliest
  std::int64_t top_k = 0;         // only the k likeliest; 0: all
  double top_p = 1;               // only the likeliest that together reach this probability
  std::uint64_t seed = 1;         // the same seed gives the same text
  std::int32_t end_of_text = -1;  // the token that ends the text; -1: none
  std::int64_t classes = 0;       // tokens 0 .. classes - 1 may be drawn; 0: the vocabulary
};

// Throws Error if temperature is not 0 or more and finite, top_k < 0, or top_p is outside (0, 1].
void validate(const GenerateOptions& options);

// The ranks that write a text together, since none of them has the whole model.
struct TextRanks {
  // That communicate among the ranks which share the batch: ZeRO's stage 3 gathers weights. All of
  // these take the same passes then; without hooks those of the mesh's first dp do, or of its first
  // ranks of ep, which have the experts.
  Hooks hooks = {};
  Mesh* mesh = nullptr;      // of stages and of ranks that share layers; null: there are none
  Stages* stages = nullptr;  // null: each has all layers, or a part of each
};
// Whether this rank of `world` is one of them.
bool takes_part(const Communicator& world, const TextRanks& ranks);

// Continues `prompt` and returns what was generated, without the prompt and without end_of_text,
// where it stops. `each` sees every token as it comes and returns false to stop after it. Token i
// is drawn with number i of Philox(seed, "sample").
//
// Keys and values are cached, so that a token costs one pass of one token. Positions are learned
// and cannot be shifted: when the context is full, its last half is computed again from position 0,
// which happens every context / 2 tokens; a prompt that is longer than the context is cut likewise.
//
// With `ranks` it is collective: all that take part pass the same, and have the tokens that a rank
// with the last stage draws, until `each` of rank 0 says to stop; the others' are called as well.
//
// Throws Error for an empty prompt, a prompt token outside the vocabulary, and options that are not
// as in `draw`.
std::vector<std::int32_t> generate(
    const Rank& rank, const Model& model, const GptConfig& config,
    std::span<const std::int32_t> prompt, const GenerateOptions& options,
    const std::function<bool(std::int32_t)>& each = [](std::int32_t) { return true; },
    const TextRanks& ranks = {});

// The token that `uniform`, in [0, 1), draws from softmax(logits / temperature), logits (V):
//   - of the top_k largest logits (of equal ones, those with the lower ids), then
//   - of the smallest set of the likeliest of these whose probability, among these, reaches top_p:
//     Holtzman et al., "The curious case of neural text degeneration", 2020, section 3.1.
// The tokens that are left share [0, 1) in the order of their ids. Temperature 0: the largest
// logit, of equal ones the lowest id. Costs O(V): nothing is sorted. Throws Error if temperature is
// not 0 or more and finite, top_k < 0, top_p is outside (0, 1], or a logit is NaN or infinite; -inf
// is a token that is never drawn, but not all can be.
std::int32_t draw(std::span<const double> logits, const GenerateOptions& options, double uniform);

}  // namespace aisc
