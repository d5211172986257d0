// What a command line may ask for: numbers in their range, and a run that fits into memory.
#pragma once

#include <cstdint>
#include <string>

#include "common/train/trainer.h"

namespace aisc {

// Throws Error with what is needed and what there is if `ranks` ranks on the CPU, of config.batch
// over `all_ranks`, cannot hold their models, activations and `eval_windows` in `available` bytes.
struct MemoryRequest {
  TrainConfig config;
  int ranks = 1, all_ranks = 1;
  std::int64_t eval_windows = 0;
};
void require_memory(const MemoryRequest& request, std::int64_t available);

}  // namespace aisc
