// What a step of a GPT takes that is split over t ranks (parallel_block.h): seconds of a machine's
// profile and bytes of a device's ledger, without numbers (docs/virtual_time.md); and the formulas
// that they stand beside.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/model/machine.h"
#include "common/nn/gpt.h"
#include "common/train/recompute.h"

namespace aisc {

struct SplitStep {
  int ranks = 1;             // t
  std::int64_t samples = 1;  // of config.context tokens, in one micro-batch
  BlockRange blocks = {};    // a part of the model; all of it has embedding, head and loss, too
  Recompute recompute = {};
  // The model's parts as a rank of `tp` has them; empty: tensor_parallel_parts().
  std::function<GptParts(Communicator& tp)> parts = {};
};

// Of one rank; all do the same.
struct StepFigures {
  double forward_seconds = 0, backward_seconds = 0, update_seconds = 0;
  double waiting_seconds = 0;  // of these two what the trace has as communication: for sums
  double product_flops = 0;    // that forward and backward were charged for
  std::int64_t parameters = 0;
  std::int64_t kept_bytes = 0;              // of activations between forward and backward
  std::vector<std::int64_t> layer_bytes{};  // of these what each layer keeps
  Ledger ledger{};                          // behind the update

  double seconds() const { return forward_seconds + backward_seconds + update_seconds; }
};

// Forward, backward and AdamW of one micro-batch, sums over ranks by rings on the machine's links.
// Bytes have no limit: the caller compares with machine.capacity. One rank runs in place of all
// (common/model/replicas.h). Throws Error for sizes that t does not divide.
StepFigures run_step(Machine machine, const GptConfig& config, const SplitStep& step);

// FLOPs of products in such a step of the whole model, over all ranks, what is recomputed included:
// with all blocks recomputed 96 b s l h^2 (1 + s/(6 h) + V/(16 l h)) (Narayanan et al., arXiv
// 2104.04473, equation 3).
double step_flops(const GptConfig& config, const SplitStep& step);

// The machine with each rank in a node of its own, and a card of its own to the others.
Machine one_rank_a_node(Machine machine);

// What t ranks divide and what each has whole.
struct Divided {
  std::int64_t split = 0, whole = 0;
  std::int64_t on_each_of(int ranks) const { return split / ranks + whole; }
};
// Elements of a block's 12 h^2 + 13 h parameters. Split: four matrices and the biases of
// column-parallel layers, 12 h^2 + 7 h. Whole: those of row-parallel layers and two norms, 6 h.
Divided block_parameters(const GptConfig& config);
// Bytes that a block keeps from forward to backward of `samples` samples, b. In a type of 2 bytes:
//
//   split   s b (24 h + 4 a)   queries, keys, values (6 h), attention's output (2 h), the hidden
//                              layer before and after GELU (16 h), log-sum-exp (F32, a heads)
//   whole   s b (8 h + 16)     the inputs of both norms and what the norms make of them (2 h each),
//                              mean and rstd (F32)
Divided block_activations(const GptConfig& config, std::int64_t samples);
// The same by Korthikanti et al. (arXiv 2205.05198, section 4.2): s b h (10 + 24/t + 5 a s/(h t)).
// They keep the masks of two dropouts (2 h of the 10), here drawn again, and per head s x s scores,
// what softmax makes of them and a mask (5 a s), here computed again tile by tile.
double published_block_activations(const GptConfig& config, std::int64_t samples, int ranks);

}  // namespace aisc
