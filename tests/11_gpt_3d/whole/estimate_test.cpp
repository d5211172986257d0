// What a run on a mesh is said to need and to send before it begins: what a step of all of its
// ranks then holds and sends.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "11_gpt_3d/step_of.h"
#include "app/emulated_run.h"
#include "tests/support/message_of.h"

namespace aisc {
namespace {

Options run_of_estimate(int ranks, int pp, int tp, const std::string& schedule = "1f1b") {
  Options options;
  options.ranks = ranks;
  TrainConfig& c = options.train;
  c.model = {.layers = 8, .heads = 12, .width = 96, .context = 32, .vocabulary = 512};
  c.pp = pp;
  c.tp = tp;
  c.batch = 16 * c.data_ranks(ranks);
  c.micro_batches = 8;
  options.pipeline.schedule = schedule;
  if (schedule == "interleaved") options.pipeline.chunks = 2;
  if (schedule == "pipedream") c.clip = 0;
  return options;
}

EmulatedRun emulated(const Options& options) {
  return {.config = options.train,
          .machine = find_machine("dgx-a100"),
          .ranks = options.ranks,
          .meta = true,
          .parts = step_of(options)};
}
EmulatedStep step_of_run(const EmulatedRun& run) {
  return emulate(run,
                 std::vector<std::uint8_t>(static_cast<std::size_t>(run.config.model.context + 1)));
}

// One rank a stage against all of them. Where parts are not equally large the first is the
// smallest.
constexpr double kOfUnequalParts = 0.002;
void expect_what_is_held(const Options& options, const std::string& name) {
  const PlannedStep planned = plan_step(options.train, options.ranks, step_of(options));
  EmulatedRun run = emulated(options);
  run.alike = false;
  const EmulatedStep step = step_of_run(run);
  EXPECT_NEAR(planned.needed.model / step.needed.model, 1, kOfUnequalParts) << name;
  EXPECT_NEAR(planned.needed.activations / step.needed.activations, 1, kOfUnequalParts) << name;
  for (const Purpose p :
       {Purpose::Parameters, Purpose::Gradients, Purpose::Optimizer, Purpose::Activations})
    EXPECT_EQ(planned.books.ledger[p].peak_bytes, step.ledger[p].peak_bytes)
        << name << ", rank 0: " << aisc::name_of(p);
  for (const auto to : {&SentBytes::data, &SentBytes::tensor, &SentBytes::stages,
                        &SentBytes::tables, &SentBytes::sums})
    EXPECT_EQ(planned.books.sent.*to, step.sent.*to) << name;
}

TEST(Estimate, OfEachScheduleIsWhatItHolds) {
  for (const char* schedule :
       {"naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "2bw", "pipedream"})
    expect_what_is_held(run_of_estimate(8, 4, 1, schedule), schedule);
}

TEST(Estimate, OfStagesThatRunForwardAgainIsTheirInputs) {
  for (const char* again : {"early", "arrival"}) {
    Options options = run_of_estimate(4, 4, 1);
    const double kept = plan_step(options.train, 4, step_of(options)).needed.activations;
    options.pipeline.again = again;
    expect_what_is_held(options, again);
    EXPECT_LT(plan_step(options.train, 4, step_of(options)).needed.activations, kept) << again;
  }
}

TEST(Estimate, OfLayersInPartsIsWhatEachRankHolds) {
  for (const int tp : {2, 3, 4})
    for (const char* recompute : {"none", "core", "block"}) {
      Options options = run_of_estimate(2 * tp, 1, tp);
      options.train.recompute = Recompute::parse(recompute);
      expect_what_is_held(options, std::to_string(tp) + " to a layer, recomputed: " + recompute);
    }
}

TEST(Estimate, OfAllAtOnceIsWhatEachRankHolds) {
  for (const int zero : {0, 1, 3}) {
    Options options = run_of_estimate(16, 4, 2);
    options.sharding.zero = zero;
    expect_what_is_held(options, "pp 4, tp 2, zero " + std::to_string(zero));
  }
  Options options = run_of_estimate(8, 2, 2);
  options.optimizer = "adafactor";
  expect_what_is_held(options, "adafactor");
}

// Signs are of ranks that do not do the same: all of them run.
TEST(Estimate, OfSignsIsWhatEachRankHolds) {
  Options options = run_of_estimate(3, 1, 1);
  options.optimizer = "onebit-adam";
  options.data_parallel.onebit_warmup = 1;
  options.train.clip = 0;
  const PlannedStep planned = plan_step(options.train, 3, step_of(options), false);
  options.optimizer = "adamw";
  const PlannedStep plain = plan_step(options.train, 3, step_of(options));
  const double numbers = plain.books.ledger[Purpose::Parameters].live_bytes / 4.0;
  const double more = (planned.needed.model - plain.needed.model) / numbers;
  EXPECT_GE(more, 4 * (1 + 1 / 3.0)) << "errors as a worker, and as a server of a share, in F32";
  EXPECT_LE(more, 4 * (1 + 1 / 3.0) + 1) << "and bits that are sent";
}

// What a machine has no room for is said of all of a rank.
TEST(Estimate, IsWhatAMachineHasNoRoomFor) {
  EmulatedRun run = emulated(run_of_estimate(4, 2, 2));
  const NeededBytes needed = plan_step(run.config, run.ranks, run.parts).needed;
  run.machine.capacity = 0.9 * (needed.model + needed.activations);
  const std::string said = message_of([&] { step_of_run(run); });
  EXPECT_EQ(said.find("a rank needs about "), 0U) << said;
  EXPECT_NE(said.find("for weights, gradients and optimizer"), std::string::npos) << said;
  run.machine.capacity = 1.01 * (needed.model + needed.activations);
  step_of_run(run);
}

}  // namespace
}  // namespace aisc
