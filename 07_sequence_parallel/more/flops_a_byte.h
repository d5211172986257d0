// What is worth keeping: of each tensor that a block keeps for backward, what it costs to make it
// again (Korthikanti et al., "Reducing activation recomputation in large transformer models", arXiv
// 2205.05198, section 5: what is large and cheap is made again, what is small and dear is kept).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/machine.h"
#include "common/nn/gpt.h"

namespace aisc {

struct KeptTensor {
  std::string name;
  bool of_core = false;  // between queries, keys and values and attention's output
  double bytes = 0;
  double flops = 0;    // charged for making it of those that stand before it
  double seconds = 0;  // of a machine's profile

  double flops_a_byte() const { return flops / bytes; }
};

// Those of a block with attention that stores its scores and dropout that stores its masks
// (stored_attention.h), in the order in which forward makes them: on a device without numbers each
// is made once, alone. The block's input is what the last product of the block before has made.
// With s tokens, b samples, h columns and a heads in 16 bits these are 34 s b h + 5 a s^2 b bytes,
// and 16 s b of the norms' statistics.
std::vector<KeptTensor> kept_tensors(Machine machine, const GptConfig& config,
                                     std::int64_t samples);

}  // namespace aisc
