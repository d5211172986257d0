// What a run is said to need before it begins: what a step then holds, by the ledger of a machine
// that is not there.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "11_gpt_3d/step_of.h"
#include "app/emulated_run.h"

namespace aisc {
namespace {

Options run_of_estimate(int ranks, int pp, int tp, const std::string& schedule = "1f1b") {
  Options options;
  options.ranks = ranks;
  TrainConfig& c = options.train;
  c.model = {.layers = 8, .heads = 8, .width = 512, .context = 256, .vocabulary = 512};
  c.batch = 16 * c.data_ranks(ranks);
  c.pp = pp;
  c.tp = tp;
  c.batch = 16 * c.data_ranks(ranks);
  c.micro_batches = 8;
  options.pipeline.schedule = schedule;
  if (schedule == "interleaved") options.pipeline.chunks = 2;
  return options;
}

// Activations that a step holds, of those that were said.
double share(const Options& options) {
  TrainConfig config = options.train;
  config.at_once = micro_batches_at_once(options);
  const EmulatedRun run{.config = config,
                        .machine = find_machine("dgx-a100"),
                        .ranks = options.ranks,
                        .meta = true,
                        .parts = step_of(options),
                        .alike = false};
  const std::vector<std::uint8_t> text(static_cast<std::size_t>(config.model.context + 1));
  const Ledger ledger = emulate(run, text).ledger;
  return static_cast<double>(ledger[Purpose::Activations].peak_bytes) /
         config.needed_bytes(options.ranks).activations;
}

TEST(Estimate, OfEachScheduleIsWhatItHolds) {
  for (const char* schedule : {"naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v"})
    EXPECT_NEAR(share(run_of_estimate(4, 4, 1, schedule)), 1, 0.06) << schedule;
}

TEST(Estimate, OfStagesThatRunForwardAgainIsTheirInputs) {
  for (const char* schedule : {"gpipe", "1f1b"}) {
    Options options = run_of_estimate(4, 4, 1, schedule);
    options.pipeline.again = "early";
    EXPECT_LE(share(options), 1.06) << schedule;
    EXPECT_GE(share(options), 0.85) << schedule << ": the first stage's input is tokens";
  }
}

TEST(Estimate, OfLayersInPartsIsWhatEachRankHolds) {
  for (const int tp : {2, 4, 8})
    for (const char* recompute : {"none", "core", "block"}) {
      Options options = run_of_estimate(2 * tp, 1, tp);
      options.train.recompute = Recompute::parse(recompute);
      EXPECT_NEAR(share(options), 1, 0.06) << tp << " ranks, recomputed: " << recompute;
    }
  EXPECT_NEAR(share(run_of_estimate(8, 2, 2)), 1, 0.06);
}

}  // namespace
}  // namespace aisc
