// What compress is asked for.
#pragma once

#include <cstdint>
#include <string>

#include "10_model_compression/quantize.h"
#include "common/core/flags/command_line.h"

namespace aisc {

// Each as its flag says: --help tells.
struct CompressFlags {
  std::string from, to, out, range = "symmetric", per = "group", corpus, validation, tokenizer;
  double sparsity = 0.5;
  std::int64_t group = 64, calibrate = 0, eval_windows = 64, heads = 0;
  int threads = 0;

  void declare(CommandLine& line);
  // Throws Error for flags that do not go together, and for a quantization that there is not.
  void check(int argc, const char* const* argv) const;

  bool prunes() const { return to == "pruned"; }
  Quantization how() const;  // where it does not prune
};

// What becomes of matrices, for people.
std::string words_for(const CompressFlags& flags);

}  // namespace aisc
