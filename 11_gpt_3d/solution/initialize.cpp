#include "11_gpt_3d/initialize.h"

#include <utility>

#include "11_gpt_3d/step_of.h"
#include "common/core/error.h"

namespace aisc {

Options engine_options(const std::vector<std::string>& flags, int ranks, const Options& defaults) {
  const std::string count = "--ranks=" + std::to_string(ranks);
  std::vector<const char*> words{"engine", count.c_str()};
  for (const std::string& flag : flags) words.push_back(flag.c_str());
  const ParsedOptions parsed =
      parse_options(static_cast<int>(words.size()), words.data(), "{}", defaults);
  if (!parsed.options) fail("engine: these flags are refused");
  return *parsed.options;
}

std::unique_ptr<Engine> initialize(const Rank& rank, Model model, const Options& options) {
  if (options.data_parallel.layered || options.data_parallel.average_every > 0)
    fail(
        "engine: found --accumulate layered or --average-every: expected a loop that passes one "
        "micro-batch after the other, and sums in each step");
  make_tier(options, rank);
  return std::make_unique<Engine>(rank, std::move(model), options.train, step_of(options));
}

}  // namespace aisc
