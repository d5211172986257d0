// What a command line may ask for: numbers in their range, and a run that fits into memory.
#pragma once

#include <cstdint>
#include <string>

#include "common/train/trainer.h"

namespace aisc {

// The number that `text` is, in decimal. Throws Error ("--steps 2,1e3: expected a whole number from
// 1 to 1000000000") for everything else; a real number is finite.
std::int64_t whole_number(const std::string& flag, const std::string& text, std::int64_t least,
                          std::int64_t most);
double real_number(const std::string& flag, const std::string& text);

// Throws Error with what is needed and what there is if `ranks` ranks on the CPU, of config.batch
// over `all_ranks`, cannot hold their models, activations and `eval_windows` in `available` bytes.
struct MemoryRequest {
  TrainConfig config;
  int ranks = 1, all_ranks = 1;
  std::int64_t eval_windows = 0;
};
void require_memory(const MemoryRequest& request, std::int64_t available);

}  // namespace aisc
