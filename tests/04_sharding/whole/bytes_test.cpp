// Bytes of weights, gradients and optimizer in the books of every rank: between steps, at every
// moment of a step, while a model is made and while it is evaluated.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "03_data_parallel/layered.h"
#include "04_sharding/sharded_units.h"
#include "common/comm/host_values.h"
#include "common/nn/driver.h"
#include "tests/04_sharding/whole/gpt_sizes.h"
#include "tests/support/ledger_checks.h"

namespace aisc {
namespace {

const MicroBatchLoop kLoops[] = {one_after_another, layered};

// Of the parameters themselves, without padding, in a rank's shard of each unit.
std::int64_t own_elements(const FlatLayout& layout, int rank) {
  std::int64_t sum = 0;
  for (std::size_t u = 0; u < layout.units().size(); ++u) {
    const Range shard = layout.shard(u, rank);
    for (const Range& p : layout.units()[u].parameters)
      sum += std::max<std::int64_t>(0, std::min(shard.end, p.end) - std::max(shard.begin, p.begin));
  }
  return sum;
}

void on_ranks(const std::vector<int>& counts, const std::function<void(const Rank&)>& body) {
  for (const int ranks : counts) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    launch(launch_options({.ranks = ranks}), body);
  }
}

// (2 + 2 + 12) Psi, of which stage 1 divides the 12, stage 2 a 2 more, and stage 3 all.
TEST(ShardedBytes, AreThePapersBetweenSteps) {
  for (const int stage : {1, 2, 3})
    on_ranks({1, 2, 3, 4, 8}, [&](const Rank& rank) {
      Books books(rank, config_of(), sharded({.stage = stage}));
      const std::int64_t psi = books.sizes.all;
      const std::int64_t numbers =
          own_elements(books.trainer.parameters().layout(), rank.world.rank());
      for (int i = 0; i < 3; ++i) {
        SCOPED_TRACE("stage " + std::to_string(stage) + ", after step " + std::to_string(i));
        const int weights = stage == 3 ? books.ranks : 1, gradients = stage > 1 ? books.ranks : 1;
        EXPECT_TRUE(live_bytes_are(rank.device, Purpose::Parameters, 2 * psi / weights));
        EXPECT_TRUE(live_bytes_are(rank.device, Purpose::Gradients, 2 * psi / gradients));
        EXPECT_TRUE(live_bytes_are(rank.device, Purpose::Optimizer, 12 * numbers));
        EXPECT_TRUE(live_bytes_are(rank.device, Purpose::Activations, 0));
        EXPECT_TRUE(live_bytes_are(rank.device, Purpose::Communication, 0));
        books.step();
      }
      EXPECT_EQ(books.peak(Purpose::Optimizer), 12 * numbers) << "it never rises";
      EXPECT_EQ(sum_of_all(rank.world, 12 * numbers),
                12 * books.trainer.parameters().parameter_count())
          << "all ranks' optimizers are one";
    });
}

// Elements that are whole at most during a step, beside the shards and what persists.
struct Knob {
  const char* says;
  GatherOptions options;
  std::function<std::int64_t(const Sizes&)> whole;
};
const Knob kKnobs[] = {
    {"a layer alone", {.prefetch = 0}, [](const Sizes& s) { return s.block; }},
    {"a layer and the next", {}, [](const Sizes& s) { return 2 * s.block; }},
    {"a layer and two more",
     {.prefetch = 2},
     [](const Sizes& s) { return 2 * s.block + std::max(s.positions, s.norm); }},
    {"no two blocks at once",
     {.prefetch = 2, .live = 5000},
     [](const Sizes& s) { return s.block + s.table + std::max(s.positions, s.norm); }},
    {"all, from forward to backward",
     {.reuse = GatherOptions::kAll},
     [](const Sizes& s) { return s.all; }},
    {"small units beside", {.persist = 600}, [](const Sizes& s) { return 2 * s.block; }}};

std::int64_t persisting(const Sizes& sizes, const GatherOptions& options) {
  std::int64_t sum = 0;
  for (const std::int64_t count : sizes.counts) sum += count <= options.persist ? count : 0;
  return sum;
}

TEST(ShardedBytes, OfWeightsAreShardsAndWhatTheScheduleWants) {
  for (const Knob& knob : kKnobs)
    for (const MicroBatchLoop& loop : kLoops)
      on_ranks({1, 2, 4, 8}, [&](const Rank& rank) {
        SCOPED_TRACE(knob.says);
        StepParts parts = sharded({.stage = 3, .gather = knob.options});
        parts.loop = loop;
        Books books(rank, config_of(3), parts);
        const Sizes& sizes = books.sizes;
        const std::int64_t always =
            kBytes * (sizes.all / books.ranks + persisting(sizes, knob.options));
        EXPECT_EQ(books.peak(Purpose::Parameters), always)
            << "while the model was made: it is drawn shard by shard, never whole";
        for (int i = 0; i < 2; ++i) {
          rank.device.reset_peaks();
          books.step();
          EXPECT_EQ(books.peak(Purpose::Parameters), always + kBytes * knob.whole(sizes))
              << "in step " << i;
          EXPECT_LE(knob.whole(sizes), knob.options.live);
        }
      });
}

// Forward alone, of windows whose loss is asked for or of a text that is written: nothing waits for
// a backward, and no gradient comes.
TEST(ShardedBytes, OfAnEvaluationAndOfWritingAreThoseOfForward) {
  for (const GatherOptions& options :
       {GatherOptions{.prefetch = 0}, GatherOptions{}, GatherOptions{.reuse = GatherOptions::kAll},
        GatherOptions{.persist = 600}})
    on_ranks({1, 2, 4}, [&](const Rank& rank) {
      Books books(rank, config_of(), sharded({.stage = 3, .gather = options}));
      const Sizes& sizes = books.sizes;
      const std::int64_t always = kBytes * (sizes.all / books.ranks + persisting(sizes, options));
      const auto expect_forward = [&](const char* what) {
        // What comes back in the same forward may stay for it: the head's table.
        const std::int64_t blocks = options.prefetch > 0 ? 2 * sizes.block : sizes.block;
        EXPECT_EQ(books.peak(Purpose::Parameters),
                  always + kBytes * (blocks + (options.reuse > 0 ? sizes.table : 0)))
            << what;
        EXPECT_TRUE(live_bytes_are(rank.device, Purpose::Parameters, always)) << what;
        EXPECT_EQ(books.peak(Purpose::Gradients), kBytes * sizes.all / books.ranks) << what;
        rank.device.reset_peaks();
      };
      for (const bool after_a_step : {false, true}) {
        if (after_a_step) books.step();
        rank.device.reset_peaks();
        books.evaluate();
        expect_forward("evaluated");
        books.write();
        expect_forward("written");
      }
    });
}

// Beside the shards: a block whose backward runs, the one above it, which is being sent, and the
// table, to which the head adds first and the embedding last.
TEST(ShardedBytes, OfGradientsAreShardsTwoBlocksAndTheTable) {
  for (const int stage : {1, 2, 3})
    for (const std::int64_t micro_batches : {1, 3})
      for (const MicroBatchLoop& loop : kLoops)
        on_ranks({1, 2, 4, 8}, [&](const Rank& rank) {
          SCOPED_TRACE("stage " + std::to_string(stage));
          StepParts parts = sharded({.stage = stage});
          parts.loop = loop;
          Books books(rank, config_of(micro_batches), parts);
          const Sizes& sizes = books.sizes;
          const std::int64_t always = kBytes * sizes.all / (stage > 1 ? books.ranks : 1);
          EXPECT_EQ(books.peak(Purpose::Gradients), always) << "while the model was made";
          const std::int64_t whole = stage > 1 ? sizes.table + 2 * sizes.block : 0;
          for (int i = 0; i < 2; ++i) {
            rank.device.reset_peaks();
            books.step();
            EXPECT_EQ(books.peak(Purpose::Gradients), always + kBytes * whole) << "in step " << i;
          }
        });
}

// The peak of a step's buffers for communication, of two models, the second four times as wide.
void expect_buffers(int stage, std::int64_t micro_batches, std::int64_t bucket,
                    const std::function<std::int64_t(const Sizes&, int ranks)>& bytes) {
  for (const std::int64_t times : {1, 4})
    on_ranks({1, 2, 4}, [&](const Rank& rank) {
      SCOPED_TRACE("stage " + std::to_string(stage) + ", " + std::to_string(times) + " times");
      TrainConfig config = config_of(micro_batches);
      config.model.width *= times;
      Books books(rank, config, sharded({.stage = stage, .bucket = bucket}));
      rank.device.reset_peaks();
      books.step();
      EXPECT_EQ(books.peak(Purpose::Communication), bytes(books.sizes, books.ranks));
    });
}

// C_B of the paper's section 6.2: a bucket that is sent, and the rank's part of it that arrives.
TEST(ShardedBytes, OfBuffersAreConstantWithABucket) {
  constexpr std::int64_t kBucket = 240;
  for (const int stage : {1, 2, 3})
    for (const std::int64_t micro_batches : {1, 3})
      expect_buffers(stage, micro_batches, kBucket, [&](const Sizes& sizes, int ranks) {
        EXPECT_GT(sizes.block, kBucket);
        return kBytes * (kBucket + kBucket / ranks);
      });
}

// Without one the first sum of a step arrives in its place. A later micro-batch's is added to it,
// and comes beside it: the rank's part of a unit, which is as large as the model makes it.
TEST(ShardedBytes, OfBuffersGrowWithTheModelWithoutABucket) {
  for (const int stage : {1, 2, 3}) {
    expect_buffers(stage, 1, 0, [](const Sizes&, int) { return 0; });
    expect_buffers(stage, 3, 0, [&](const Sizes& sizes, int ranks) {
      return stage == 1 ? 0 : kBytes * sizes.block / ranks;
    });
  }
}

}  // namespace
}  // namespace aisc
