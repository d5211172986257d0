// Weight gradients that are computed later than their layer's backward, as a zero-bubble pipeline
// does: stage 1 sends a unit when they are there; the others refuse them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "04_sharding/sharded_units.h"
#include "common/train/trainer.h"
#include "tests/04_sharding/whole/toy_run.h"
#include "tests/support/message_of.h"
#include "tests/support/serial_run.h"

namespace aisc {
namespace {

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

class DeferredSharding : public AgainstSerial {};
INSTANTIATE_TEST_SUITE_P(Ranks, DeferredSharding, ::testing::ValuesIn(conformance::rank_counts()),
                         ::testing::PrintToStringParamName());

TEST_P(DeferredSharding, IsTheSerialRunInStageOne) {
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
