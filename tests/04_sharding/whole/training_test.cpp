// Training in shards, of every stage and with every knob, and by owners: whatever the ranks, the
// serial run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "03_data_parallel/layered.h"
#include "04_sharding/sharded_units.h"
#include "tests/04_sharding/whole/toy_run.h"
#include "tests/support/message_of.h"
#include "tests/support/serial_run.h"

namespace aisc {
namespace {

using Sum = OwnerOptions::Sum;

const GatherOptions kEveryKnob[] = {{.prefetch = 0},
                                    {.prefetch = 3, .live = 6000},
                                    {.prefetch = 0, .reuse = 3000},
                                    {.reuse = GatherOptions::kAll},
                                    {.persist = 600},
                                    {.persist = GatherOptions::kAll}};

StepParts in_loop(StepParts parts, const MicroBatchLoop& loop) {
  parts.loop = loop;
  return parts;
}

class Sharding : public AgainstSerial {};
INSTANTIATE_TEST_SUITE_P(Ranks, Sharding, ::testing::ValuesIn(conformance::rank_counts()),
                         ::testing::PrintToStringParamName());

TEST_P(Sharding, IsTheSerialRunInEveryStage) {
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE("stage " + std::to_string(stage));
    expect_serial(odd_training(), sharded({.stage = stage}));
    expect_serial(odd_training(several()), sharded({.stage = stage}));
    expect_serial(odd_training(several(), "block"), in_loop(sharded({.stage = stage}), layered));
  }
}

TEST_P(Sharding, IsTheSerialRunWithEveryKnob) {
  for (const GatherOptions& gather : kEveryKnob)
    expect_serial(odd_training(several()), sharded({.stage = 3, .gather = gather}));
  for (const int stage : {1, 2, 3})
    expect_serial(odd_training(several()), sharded({.stage = stage, .bucket = 40 * GetParam()}));
}

TEST_P(Sharding, IsTheSerialRunInVirtualTime) {
  for (const int stage : {1, 2, 3})
    expect_serial_in_virtual_time(odd_training(several(), "block"), sharded({.stage = stage}));
}

TEST_P(Sharding, WaitsForWhatItReads) {
  for (const int stage : {1, 2, 3}) {
    expect_serial_when_late(odd_training(several()), sharded({.stage = stage}));
    expect_serial_when_delayed(odd_training(),
                               sharded({.stage = stage, .gather = {.prefetch = 2}}));
  }
}

TEST_P(Sharding, ByOwnersIsTheSerialRun) {
  expect_serial(odd_training(), owned());
  expect_serial(odd_training(several(), "block"), in_loop(owned(), layered));
  expect_serial(odd_training(several()), owned({.sum = Sum::AllReduce}));
  for (const GatherOptions& gather : kEveryKnob)
    expect_serial(odd_training(several()), owned({.gather = gather}));
  expect_serial_in_virtual_time(odd_training(several(), "block"), owned());
}

TEST_P(Sharding, ByOwnersWaitsForWhatItReads) {
  for (const Sum sum : {Sum::ReduceToOwner, Sum::AllReduce})
    expect_serial_when_late(odd_training(several()),
                            owned({.gather = {.persist = 600}, .sum = sum}));
  expect_serial_when_delayed(odd_training(), owned({.gather = {.prefetch = 2}}));
}

// Weight gradients that are computed later than their layer's backward, as a zero-bubble pipeline
// does: stage 1 sends a unit when they are there; the others refuse them.
constexpr std::int64_t kUnits = 5;  // table, positions, two blocks, norm

std::int64_t scatters(const Rank& rank) { return rank.world.stats()[CommOp::ReduceScatter].calls; }

// One micro-batch after another; what each defers is run behind it, or behind the last of all.
enum class Runs { BehindEach, BehindAll };
MicroBatchLoop deferring(Runs runs) {
  return [runs](const Rank& rank, const Model& model, std::int64_t count,
                const ReadMicroBatch& read, double loss_factor, Hooks hooks) {
    const std::int64_t before = scatters(rank);
    double loss = 0;
    auto deferred = std::make_unique<DeferredGrads>();
    for (std::int64_t m = 0; m < count; ++m) {
      MicroBatch micro = read(m);
      micro.pass.deferred = deferred.get();
      loss += forward_backward(model, micro.batch.tokens, micro.batch.targets, micro.pass,
                               loss_factor, hooks);
      EXPECT_GE(deferred->size(), 9u) << "four products a block, and the head's";
      EXPECT_EQ(scatters(rank), before) << "nothing is whole yet";
      if (runs == Runs::BehindAll && m + 1 < count) continue;
      deferred->run_all();
      deferred = std::make_unique<DeferredGrads>();
    }
    EXPECT_GE(scatters(rank), before + kUnits) << "of each unit, once they have run";
    return loss;
  };
}

TEST_P(Sharding, IsTheSerialRunInStageOneWhereGradientsAreDeferred) {
  for (const Runs runs : {Runs::BehindEach, Runs::BehindAll})
    for (const std::int64_t bucket : {0, 40 * GetParam()})
      for (const TrainConfig& config : {odd_training(), odd_training(several(), "block")}) {
        SCOPED_TRACE(fmt::format("{} micro-batches, buckets of {}{}", config.micro_batches, bucket,
                                 runs == Runs::BehindAll ? ", all deferred to the end" : ""));
        StepParts parts = sharded({.stage = 1, .bucket = bucket});
        parts.loop = deferring(runs);
        expect_serial(config, parts);
        expect_serial_when_late(config, parts);
      }
}

TEST(DeferredShards, AreRefusedWhereGradientsAreFreed) {
  for (const int stage : {1, 2, 3})
    launch({.ranks = 2, .bind = false}, [&](const Rank& rank) {
      const ToyRun run(rank, odd_layers(), sharded({.stage = stage}));
      DeferredGrads deferred;
      Saved saved;
      const std::string said =
          message_of([&] { run.reducer->before_backward(3, {.deferred = &deferred}, saved); });
      EXPECT_EQ(said, stage == 1 ? ""
                                 : "sharding: stage " + std::to_string(stage) +
                                       " frees gradients behind a layer: weight gradients cannot "
                                       "be deferred");
      EXPECT_EQ(scatters(rank), 0);
    });
}

}  // namespace
}  // namespace aisc
