// Long sequences on ranks that share them: seconds of one layer's attention on a machine, from
// which block on a ring hides what travels, and what a rank of a real training holds.
#pragma once

#include <functional>
#include <memory>

#include "07_sequence_parallel/token_parts.h"
#include "common/model/machine.h"
#include "common/train/step_parts.h"

namespace aisc {

// A core of attention on ranks that share a sequence: who has which tokens, and the layer.
struct SharedCore {
  std::function<TokenPart(int rank)> part;
  std::function<std::unique_ptr<Layer>(const Rank& rank)> make;
};
struct CoreFigures {
  double forward_seconds = 0, backward_seconds = 0;  // of the slowest rank
  double sent_bytes = 0;                             // of rank 0, into the world itself
};
// One sample of `tokens` tokens of `width` columns, BF16, without numbers and without a limit of
// memory, in virtual time.
CoreFigures run_core(Machine machine, int ranks, std::int64_t tokens, std::int64_t width,
                     const SharedCore& core);

// A machine of nothing but products and links, as Liu, Zaharia and Abbeel count ("Ring attention
// with blockwise transformers for near-infinite context", arXiv 2310.01889, section 3): a block of
// c tokens of d columns is 4 d c^2 FLOPs and, in 16 bits, 4 d c bytes of keys and values.
Machine products_and_links(double flops, double link_bytes_per_second);
Machine without_links(Machine machine);  // whose messages take no time

// The fewest tokens a rank with which `make_core`'s forward takes as long as with links that take
// no time: by the formula FLOPs/bandwidth. Found by bisection; blocks are multiples of `step`.
// Throws Error where more than 2^20 tokens are not enough.
std::int64_t hidden_from(const Machine& machine, int ranks, std::int64_t width, std::int64_t step,
                         const std::function<SharedCore(std::int64_t tokens)>& make_core);

// Steps of a small GPT (one block, `width` columns, 2 heads, 32 words) with a context of so many
// tokens on cp ranks, threads of this process, on a text that repeats itself.
struct LongRun {
  double first_loss = 0, last_loss = 0;
  std::int64_t activation_bytes = 0;  // peak of the rank that holds most
  std::int64_t all_bytes = 0;         // with weights, gradients, states and workspace
  double seconds = 0;
};
LongRun train_long(std::int64_t tokens, std::int64_t width, int cp, int steps,
                   const StepParts& parts);

}  // namespace aisc
