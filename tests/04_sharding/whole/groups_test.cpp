// Shards within groups of ranks: the serial run, whatever the groups; and what a rank then holds,
// sends within its group and sends across groups.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "03_data_parallel/layered.h"
#include "04_sharding/sharded_units.h"
#include "common/comm/host_values.h"
#include "tests/04_sharding/whole/gpt_sizes.h"
#include "tests/04_sharding/whole/toy_run.h"
#include "tests/support/error_says.h"
#include "tests/support/ledger_checks.h"
#include "tests/support/serial_run.h"

namespace aisc {
namespace {

// Those that divide `ranks`, which are one group at last.
std::vector<int> groups_of(int ranks) {
  std::vector<int> groups;
  for (int group = 1; group <= ranks; ++group)
    if (ranks % group == 0) groups.push_back(group);
  return groups;
}

// -- the serial run ------------------------------------------------------------------------------

class ShardGroups : public AgainstSerial {
 protected:
  // Of every stage and all groups.
  template <class F>
  void for_all(const F& expect) {
    for (const int stage : {1, 2, 3})
      for (const int group : groups_of(GetParam())) {
        SCOPED_TRACE(fmt::format("stage {}, groups of {}", stage, group));
        expect(ShardOptions{.stage = stage, .group = group});
      }
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, ShardGroups,
                         ::testing::ValuesIn(conformance::rank_counts({2, 4, 6})),
                         ::testing::PrintToStringParamName());

TEST_P(ShardGroups, AreTheSerialRunInEveryStage) {
  for_all([&](const ShardOptions& options) {
    expect_serial(odd_training(), sharded(options));
    expect_serial(odd_training(several(), "block"), sharded(options));
    StepParts parts = sharded(options);
    parts.loop = layered;
    expect_serial(odd_training(several()), parts);
  });
}

TEST_P(ShardGroups, AreTheSerialRunWithKnobs) {
  for_all([&](ShardOptions options) {
    options.bucket = 40 * options.group;
    options.gather = {.prefetch = 3, .live = 6000, .persist = 600};
    expect_serial(odd_training(several()), sharded(options));
  });
}

TEST_P(ShardGroups, AreTheSerialRunInVirtualTime) {
  for (const int stage : {1, 2, 3})
    expect_serial_in_virtual_time(odd_training(several(), "block"),
                                  sharded({.stage = stage, .group = 2}));
}

TEST_P(ShardGroups, WaitForWhatTheyRead) {
  for_all([&](const ShardOptions& options) {
    expect_serial_when_late(odd_training(several()), sharded(options));
  });
  expect_serial_when_delayed(odd_training(), sharded({.stage = 3, .group = 2}));
}

// Two micro-batches on 4 ranks, by shard() and a loop of one's own: all ranks have the same weights
// and the same norm, those of one group.
TEST(ShardGroupsInOneCall, AreThoseOfOneGroup) {
  const auto run = [](int group) {
    std::vector<double> found;
    launch(launch_options({.ranks = 4}), [&](const Rank& rank) {
      const TrainConfig config = odd_training();
      const Model model = make_gpt(rank, config.model);
      const Sharded s =
          shard(rank, model, 2, {.group = group}, config.seed, {DType::F64, DType::F64});
      AdamW adamw(s.units->slices(), {});
      const std::vector<std::uint8_t> text = some_text();
      const BatchSampler data(text, config.model.context, config.seed);
      LayerHook* const hooks[] = {s.units.get()};
      s.store->clear_grads();
      s.units->begin();
      for (int m = 0; m < 2; ++m) {
        const Batch batch = data.batch(rank.device, 2 * rank.world.rank() + m, 1);
        forward_backward(model, batch.tokens, batch.targets,
                         {.micro_batch = m, .last_micro_batch = m == 1}, 1.0 / 88, hooks);
      }
      s.units->finish();
      std::vector<double> mine = {s.units->norm({})};
      adamw.step({.learning_rate = 1e-2});
      s.units->updated();
      for (const Parameter* p : s.store->parameters())
        for (const double x : to_doubles(p->value())) mine.push_back(x);
      const std::string bytes(reinterpret_cast<const char*>(mine.data()),
                              mine.size() * sizeof mine[0]);
      for (const std::string& other : all_texts(rank.world, bytes))
        EXPECT_TRUE(other == bytes) << "rank " << rank.world.rank();
      if (rank.world.rank() == 0) found = mine;
    });
    return found;
  };
  const std::vector<double> all = run(0);
  EXPECT_GT(all[0], 0);
  EXPECT_EQ(run(4), all) << "to the bit";
  for (const int group : {1, 2}) {
    const std::vector<double> found = run(group);
    ASSERT_EQ(found.size(), all.size());
    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_NEAR(found[i], all[i], 1e-10) << i;
  }
}

TEST(ShardGroupsErrors, OfGroupsThatDoNotDivideTheRanks) {
  for (const int group : {-1, 3, 8})
    EXPECT_TRUE(error_says(
        [&] {
          launch({.ranks = 4, .bind = false}, [&](const Rank& rank) {
            const Model model = make_gpt(rank, odd_training().model);
            shard(rank, model, 1, {.group = group});
          });
        },
        {fmt::format("sharding: groups of {} among 4 ranks, expected a divisor of them", group)}));
  EXPECT_TRUE(error_says(
      [&] {
        launch({.ranks = 4, .bind = false}, [&](const Rank& rank) {
          ToyRun(rank, odd_layers(), sharded({.bucket = 3, .group = 2}));
        });
      },
      {"sharding: buckets of 3 elements over 2 ranks"}));
}

// -- what is held --------------------------------------------------------------------------------

// (2 + 2 + 12) Psi of a group: each rank holds as if there were no other groups.
TEST(ShardGroupsBytes, AreThoseOfAGroupAlone) {
  for (const int stage : {1, 2, 3})
    for (const int group : groups_of(8))
      launch(launch_options({.ranks = 8}), [&](const Rank& rank) {
        SCOPED_TRACE(fmt::format("stage {}, groups of {}", stage, group));
        Books books(rank, config_of(), sharded({.stage = stage, .group = group}));
        for (int i = 0; i < 2; ++i) {
          rank.device.reset_peaks();
          books.step();
        }
        const std::int64_t psi = books.sizes.all;
        const int weights = stage == 3 ? group : 1, gradients = stage > 1 ? group : 1;
        EXPECT_TRUE(live_bytes_are(rank.device, Purpose::Parameters, 2 * psi / weights));
        EXPECT_TRUE(live_bytes_are(rank.device, Purpose::Gradients, 2 * psi / gradients));
        EXPECT_TRUE(live_bytes_are(rank.device, Purpose::Communication, 0));
        const std::int64_t states = rank.device.ledger()[Purpose::Optimizer].live_bytes;
        EXPECT_EQ(sum_of_all(rank.world, states),
                  8 / group * 12 * books.trainer.parameters().parameter_count())
            << "each group's optimizers are one";
        const Sizes& s = books.sizes;
        EXPECT_EQ(books.peak(Purpose::Parameters),
                  2 * (psi / weights + (stage == 3 ? 2 * s.block : 0)));
        EXPECT_EQ(books.peak(Purpose::Gradients),
                  2 * (psi / gradients + (stage > 1 ? s.table + 2 * s.block : 0)));
      });
}

// -- what is sent --------------------------------------------------------------------------------

std::int64_t payload(const CommStats& stats, CommOp op) { return stats[op].payload_bytes; }

// The formulas of sharded_units.h, in 2 steps of m micro-batches, of bytes in BF16.
TEST(ShardGroupsVolumes, AreThoseOfAGroupAndOneSumOfEachShardAcross) {
  constexpr int kRanks = 8, kSteps = 2;
  const Machine machine = find_machine("limitless");
  for (const int stage : {1, 2, 3})
    for (const int g : {1, 2, 4})
      for (const int m : {1, 3})
        launch(on_machine(machine, kRanks, {.meta = true}), [&](const Rank& rank) {
          SCOPED_TRACE(fmt::format("stage {}, groups of {}, {} micro-batches", stage, g, m));
          Books books(rank, config_of(m), sharded({.stage = stage, .group = g}));
          const Reducer::Groups groups = books.trainer.reducer().groups();
          ASSERT_TRUE(groups.within && groups.across);
          EXPECT_EQ(groups.within->size(), g);
          EXPECT_EQ(groups.within->rank(), rank.world.rank() % g);
          EXPECT_EQ(groups.across->size(), kRanks / g);
          EXPECT_EQ(groups.across->rank(), rank.world.rank() / g);
          const CommStats in_before = groups.within->stats(), out_before = groups.across->stats();
          for (int i = 0; i < kSteps; ++i) books.step();
          const CommStats in = groups.within->stats(), out = groups.across->stats();
          const std::int64_t psi = books.sizes.all, scatters = stage > 1 ? m : 1;
          EXPECT_EQ(payload(in, CommOp::ReduceScatter), kSteps * kBytes * scatters * psi);
          const std::int64_t gathered = stage < 3 ? psi : 2 * m * psi + books.sizes.table;
          EXPECT_EQ(payload(in, CommOp::AllGather) - payload(in_before, CommOp::AllGather),
                    kSteps * kBytes * gathered / g);
          EXPECT_EQ(payload(in, CommOp::AllReduce), kSteps * 8) << "the norm";
          // Five units: of each the shard, once a step.
          EXPECT_EQ(out[CommOp::AllReduce].calls, kSteps * 5);
          EXPECT_EQ(payload(out, CommOp::AllReduce), kSteps * kBytes * psi / g);
          EXPECT_EQ(out.sent().wire_bytes - out_before.sent().wire_bytes,
                    kSteps * kBytes * 2 * psi / g * (kRanks / g - 1) / (kRanks / g))
              << "2 Psi/g (N/g - 1)/(N/g) elements";
          std::int64_t calls = 0;
          for (const CommStats::Row& row : out.rows) calls += row.calls;
          EXPECT_EQ(calls, kSteps * 5) << "nothing else is sent across";
          EXPECT_EQ(payload(rank.world.stats(), CommOp::AllReduce), kSteps * 8) << "the loss";
        });
}

// Sums that are under way across groups when the next layer's backward begins.
class CountsSums final : public LayerHook {
 public:
  explicit CountsSums(const Communicator& across) : across_(across) {}
  void before_backward(std::size_t, const Pass&, Saved&) override {
    calls.push_back(across_.stats()[CommOp::AllReduce].calls);
  }
  std::vector<std::int64_t> calls;

 private:
  const Communicator& across_;
};

// Four layers, two micro-batches. A shard's sum of the group is over when the next layer's begins:
// then it goes across. Before the last micro-batch none does.
TEST(ShardGroupsVolumes, GoAcrossWhileBackwardGoesOn) {
  for (const int stage : {1, 2, 3})
    launch({.ranks = 4, .bind = false}, [&](const Rank& rank) {
      SCOPED_TRACE(stage);
      ToyRun run(rank, odd_layers(), sharded({.stage = stage, .group = 2}));
      CountsSums sums(*run.reducer->groups().across);
      run.step(2, &sums);
      EXPECT_EQ(sums.calls, (std::vector<std::int64_t>{0, 0, 0, 0, 0, 0, 1, 2}));
      EXPECT_EQ(run.reducer->groups().across->stats()[CommOp::AllReduce].calls, 4);
    });
}

// Each element once: ranks of the first group alone write theirs.
TEST(ShardGroupsOfATrainer, WriteTheFirstGroupsShards) {
  for (const int stage : {1, 2, 3})
    launch(launch_options({.ranks = 4}), [&](const Rank& rank) {
      const Trainer trainer(rank, odd_training(), sharded({.stage = stage, .group = 2}));
      std::int64_t written = 0;
      for (const OptimizerSlice& slice : trainer.optimizer().slices()) {
        EXPECT_EQ(trainer.writes(slice), rank.world.rank() < 2);
        if (trainer.writes(slice)) written += slice.weight.count();
      }
      EXPECT_EQ(sum_of_all(rank.world, written), trainer.parameters().parameter_count());
    });
}

}  // namespace
}  // namespace aisc
