// Weight gradients that are computed later than their layer's backward, as a zero-bubble pipeline
// does: stage 1 sends a unit when they are there; the others refuse them.
#include <gtest/gtest.h>

#include "04_sharding/sharded_units.h"
#include "common/train/trainer.h"
#include "tests/04_sharding/whole/toy_run.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/conformance.h"
#include "tests/support/late_comm.h"
#include "tests/support/message_of.h"
#include "tests/support/run_layout.h"

namespace aisc {
namespace {

constexpr std::int64_t kUnits = 5;  // table, positions, two blocks, norm

// 21 samples: over 2 and 4 ranks the shares differ by one.
TrainConfig config_of_deferred(std::int64_t micro_batches = 1,
                               const std::string& recompute = "none") {
  TrainConfig c;
  c.model = odd_config(DType::F64, 0.1);
  c.gradient_dtype = DType::F64;
  c.recompute = Recompute::parse(recompute);
  c.batch = 21;
  c.micro_batches = micro_batches;
  c.learning_rate = 3e-3;
  c.warmup_steps = 2;
  c.clip = 0.05;
  return c;
}

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

class DeferredSharding : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, DeferredSharding, ::testing::ValuesIn(conformance::rank_counts()),
                         ::testing::PrintToStringParamName());

TEST_P(DeferredSharding, IsTheSerialRunInStageOne) {
  const std::vector<RunRecord> serial = run_layout(RankLayout{}, config_of_deferred(), 3);
  const std::int64_t several = GetParam() * 3 > 21 ? 1 : 3;
  for (const bool late : {false, true})
    for (const Runs runs : {Runs::BehindEach, Runs::BehindAll})
      for (const std::int64_t bucket : {0, 40 * GetParam()})
        for (const TrainConfig& config :
             {config_of_deferred(), config_of_deferred(several, "block")}) {
          StepParts parts = sharded({.stage = 1, .bucket = bucket});
          parts.loop = deferring(runs);
          LaunchOptions options = launch_options({.ranks = GetParam()});
          if (late) options.internals.decorate = make_late_comm;
          EXPECT_TRUE(
              same_steps(serial, run_layout<Trainer>({.options = options}, config, 3, parts)))
              << config.micro_batches << " micro-batches, buckets of " << bucket
              << (runs == Runs::BehindAll ? ", all deferred to the end" : "");
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
