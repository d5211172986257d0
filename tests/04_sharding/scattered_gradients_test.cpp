// Sums of which each rank keeps its part.
#include "04_sharding/scattered_gradients.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "common/comm/launch.h"
#include "tests/support/error_says.h"
#include "tests/support/late_comm.h"
#include "tests/support/numbers.h"
#include "tests/support/toy_model.h"

namespace aisc {
namespace {

using Options = ScatteredGradients::Options;

std::vector<toy::Size> three_layers() { return {{.count = 100}, {.count = 64}, {.count = 130}}; }

struct Gradients {
  Gradients(const Rank& rank, const Options& options,
            const std::vector<toy::Size>& layers = three_layers())
      : frees(options.frees),
        toy(rank, layers, {.ranks = rank.world.size(), .gradients = !options.frees}),
        scattered(rank, *toy.store, options) {}

  // A step as ShardedUnits takes it: each micro-batch's are scattered, or all at the end.
  void step(int micro_batches) {
    toy.store->clear_grads();
    scattered.begin();
    for (int m = 0; m < micro_batches; ++m)
      for (std::size_t layer = toy.sizes.size(); layer-- > 0;) {
        scattered.bind(layer);
        toy.backward(layer, m);
        if (frees || m + 1 == micro_batches) scattered.scatter(layer);
      }
    scattered.finish();
  }
  std::int64_t count(std::size_t unit) const {
    return toy.store->layout().units()[unit].range.count();
  }

  // Every rank's shard of every unit, of the parameters' elements, is the sum over the ranks.
  void expect_sums(int micro_batches) const {
    const int ranks = toy.rank.world.size(), rank = toy.rank.world.rank();
    const auto sums = toy.sums(ranks, micro_batches);
    for (std::size_t u = 0; u < toy.sizes.size(); ++u) {
      const Range shard = toy.store->layout().shard(u, rank);
      const Range own = toy.store->layout().units()[u].parameters[0];
      const std::int64_t n = std::clamp<std::int64_t>(own.end - shard.begin, 0, shard.count());
      std::vector<double> expected(sums.begin() + shard.begin, sums.begin() + shard.begin + n);
      double last = 0;
      for (int r = 0; r < ranks; ++r) last += toy::gradient(r, u, micro_batches - 1);
      const std::vector<KnownMistake> mistakes = {
          {"they are this rank's own: nobody added up the ranks'",
           std::vector(expected.size(), micro_batches * toy::gradient(rank, u, 0))},
          {"they are those of the last micro-batch alone", std::vector(expected.size(), last)}};
      EXPECT_TRUE(numbers_are(fmt::format("{} ranks, {} micro-batches, rank {}: shard of unit {}",
                                          ranks, micro_batches, rank, u),
                              scattered.shard(u).flat(0, n), expected, mistakes));
    }
  }

  bool frees;
  toy::Toy toy;
  ScatteredGradients scattered;
};

TEST(Scatter, ShardsOfTwoRanksByHand) {
  launch(late(2), [](const Rank& rank) {
    Gradients g(rank, {.frees = false}, {{.count = 128}});
    g.step(1);
    // Layer 0, micro-batch 0: rank 0's gradient is 101, rank 1's 201, everywhere.
    EXPECT_TRUE(numbers_are(fmt::format("rank {}: shard", rank.world.rank()), g.scattered.shard(0),
                            std::vector<double>(64, 302),
                            {{"nobody added up the ranks'",
                              std::vector<double>(64, rank.world.rank() == 0 ? 101 : 201)}}));
    const CommStats stats = rank.world.stats();
    EXPECT_EQ(stats[CommOp::ReduceScatter].calls, 1);
    EXPECT_EQ(stats[CommOp::AllReduce].calls, 0) << "an all-reduce sends twice as much";
  });
}

TEST(Scatter, OfAnyRanksAndMicroBatches) {
  for (const int ranks : {1, 2, 3, 4, 7})
    for (const bool frees : {false, true})
      for (const int micro_batches : {1, 3})
        launch(late(ranks), [&](const Rank& rank) {
          Gradients g(rank, {.frees = frees});
          for (int step = 0; step < 2; ++step) {  // the second overwrites the first
            g.step(micro_batches);
            g.expect_sums(micro_batches);
          }
        });
}

TEST(Scatter, UnusedParametersAreZero) {
  for (const bool frees : {false, true})
    launch(late(2), [&](const Rank& rank) {
      std::vector<toy::Size> layers = three_layers();
      layers[1].unused = true;
      Gradients g(rank, {.frees = frees}, layers);
      g.step(2);
      g.expect_sums(2);
    });
}

TEST(Scatter, InBucketsIsTheSame) {
  for (const int ranks : {1, 2, 3})
    for (const bool frees : {false, true})
      for (const std::int64_t bucket : {1, 20, 1000})
        launch(late(ranks), [&](const Rank& rank) {
          Gradients g(rank, {.frees = frees, .bucket = bucket * ranks});
          g.step(2);
          g.expect_sums(2);
        });
}

// At most the unit that is being sent and the next one, whose backward runs meanwhile.
TEST(Scatter, FreesWhatItSent) {
  launch({.ranks = 2, .bind = false}, [](const Rank& rank) {
    Gradients g(rank, {.frees = true});
    const std::int64_t shards = 8 * (g.count(0) + g.count(1) + g.count(2)) / 2;
    const auto live = [&] { return rank.device.ledger()[Purpose::Gradients].live_bytes; };
    EXPECT_EQ(live(), shards);
    g.toy.store->clear_grads();
    g.scattered.begin();
    for (std::size_t layer = 3; layer-- > 0;) {
      g.scattered.bind(layer);
      const std::int64_t before = layer < 2 ? 8 * g.count(layer + 1) : 0;
      EXPECT_EQ(live(), shards + 8 * g.count(layer) + before)
          << "the unit of layer " << layer << " and the one that is being sent";
      g.toy.backward(layer);
      g.scattered.scatter(layer);
      EXPECT_EQ(live(), shards + 8 * g.count(layer))
          << "layer " << layer << ": what was sent before it has been freed";
    }
    g.scattered.finish();
    EXPECT_EQ(live(), shards);
  });
}

TEST(Scatter, SendsEachUnitOnceAStep) {
  launch({.ranks = 2, .bind = false}, [](const Rank& rank) {
    Gradients g(rank, {.frees = false});
    g.step(3);
    const CommStats stats = rank.world.stats();
    EXPECT_EQ(stats[CommOp::ReduceScatter].calls, 3) << "one a unit, for all micro-batches";
    EXPECT_EQ(stats[CommOp::ReduceScatter].payload_bytes,
              8 * (g.count(0) + g.count(1) + g.count(2)));
  });
}

TEST(ScatteredGradientsGiven, BucketsAreOfAllRanks) {
  const auto made = [](std::int64_t bucket) {
    return [=] {
      launch({.ranks = 2, .bind = false},
             [&](const Rank& rank) { Gradients(rank, {.bucket = bucket}); });
    };
  };
  EXPECT_TRUE(error_says(made(3), {"buckets of 3 elements over 2 ranks", "a multiple"}));
  EXPECT_TRUE(error_says(made(-2), {"buckets of -2 elements"}));
}

}  // namespace
}  // namespace aisc
