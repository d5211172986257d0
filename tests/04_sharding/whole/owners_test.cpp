// Training with owners in place of slices: the serial run, and what a rank has in memory.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "04_sharding/sharded_units.h"
#include "common/comm/host_values.h"
#include "tests/04_sharding/whole/toy_run.h"
#include "tests/support/error_says.h"
#include "tests/support/late_comm.h"
#include "tests/support/ledger_checks.h"
#include "tests/support/numbers.h"

namespace aisc {
namespace {

using Sum = OwnerOptions::Sum;

// The owner's sums, over ranks and micro-batches, in two steps of which the second overwrites the
// first; the others hold nothing.
TEST(OwnersStep, OwnersHaveTheSumsOfAllRanks) {
  for (const int ranks : {1, 2, 3, 4, 7})
    for (const Sum sum : {Sum::ReduceToOwner, Sum::AllReduce})
      for (const int micro_batches : {1, 3})
        launch(late(ranks), [&](const Rank& rank) {
          std::vector<toy::Size> layers = odd_layers();
          layers[1].unused = true;
          layers[3].borrows_first = true;
          ToyRun run(rank, layers, owned({.sum = sum}));
          std::int64_t owners = 0;
          for (int step = 0; step < 2; ++step) {
            run.step(micro_batches);
            const std::vector<double> sums = run.toy.sums(ranks, micro_batches);
            for (const OptimizerSlice& slice : run.reducer->slices()) {
              const auto at = static_cast<std::size_t>(slice.name[5] - '0');  // "layer0.weight"
              const Range range = run.toy.store->layout().units()[at].parameters[0];
              EXPECT_TRUE(numbers_are(fmt::format("{} ranks, {} micro-batches, rank {}: {}", ranks,
                                                  micro_batches, rank.world.rank(), slice.name),
                                      slice.gradient,
                                      {sums.begin() + range.begin, sums.begin() + range.end}));
              EXPECT_EQ(slice.parameter, run.toy.store->parameters()[at]);
              EXPECT_EQ(slice.begin, 0);
              ++owners;
            }
          }
          EXPECT_EQ(sum_of_all(rank.world, owners), 2 * 4)
              << "each unit has one owner, in each of two steps";
        });
}

double weight(std::size_t unit, std::int64_t i) {
  return static_cast<double>(1000 * (unit + 1)) + static_cast<double>(i);
}

// Looks at a layer's weights and at the books when it is about to run.
struct Watch final : LayerHook {
  explicit Watch(const ToyRun& watched) : run(watched) {}
  void before_forward(std::size_t layer, const Pass& /*pass*/) override { look(layer); }
  void before_backward(std::size_t layer, const Pass& /*pass*/, Saved& /*saved*/) override {
    look(layer);
  }
  void look(std::size_t layer) {
    std::vector<double> expected;
    for (std::int64_t i = 0; i < run.toy.sizes[layer].count; ++i)
      expected.push_back(weight(layer, i) + more);
    EXPECT_TRUE(
        numbers_are(fmt::format("rank {}: weights of unit {}", run.toy.rank.world.rank(), layer),
                    run.toy.store->parameters()[layer]->value(), expected));
    live.push_back(run.toy.rank.device.ledger()[Purpose::Parameters].live_bytes);
  }
  const ToyRun& run;
  double more = 0;
  Bytes live = {};  // of weights, by turn
};

void fill(const ToyRun& run, double more) {
  for (const OptimizerSlice& slice : run.reducer->slices()) {
    const auto unit = static_cast<std::size_t>(slice.name[5] - '0');
    for (std::int64_t i = 0; i < slice.weight.count(); ++i)
      slice.weight.data<double>()[i] = weight(unit, i) + more;
  }
  run.reducer->take_slices();
}

TEST(OwnersStep, EachLayerFindsItsWeights) {
  for (const int ranks : {1, 2, 3, 4, 7})
    for (const GatherOptions& gather : {GatherOptions{}, kNoneAhead, GatherOptions{.persist = 64},
                                        GatherOptions{.reuse = GatherOptions::kAll}})
      launch(late(ranks), [&](const Rank& rank) {
        ToyRun run(rank, odd_layers(), owned({.gather = gather}));
        Watch watch(run);
        for (const double more : {0.0, 0.5}) {  // after an update weights are new
          watch.more = more;
          fill(run, more);
          run.step(2, &watch);
          LayerHook* const hooks[] = {run.reducer.get(), &watch};
          forward(run.toy.model, Tensor({1, 1}, DType::F64, rank.device), hooks);
        }
        EXPECT_EQ(watch.live.size(), 2U * (2 * 2 * 4 + 4));
      });
}

// At rest a rank has its own units and no other, whatever the numbers of ranks and units; while a
// layer runs, those that the schedule wants beside them.
TEST(OwnersStep, MemoryIsTheOwnUnitsAndTheSchedule) {
  for (const int ranks : {1, 2, 3, 4, 7})
    for (const GatherOptions& gather :
         {GatherOptions{}, kNoneAhead, GatherOptions{.prefetch = 0, .reuse = 200},
          GatherOptions{.prefetch = 3, .live = 320}, GatherOptions{.persist = 64}})
      launch({.ranks = ranks, .bind = false}, [&](const Rank& rank) {
        ToyRun run(rank, odd_layers(), owned({.gather = gather}));
        const std::vector<std::int64_t> counts = run.counts();
        const std::vector<int> owners = owners_of(counts, ranks);
        std::int64_t own = 0, others_that_persist = 0;
        for (std::size_t u = 0; u < counts.size(); ++u) {
          const bool other = owners[u] != rank.world.rank();
          if (!other) own += counts[u];
          if (other && counts[u] <= gather.persist) others_that_persist += counts[u];
        }
        const std::int64_t weights_at_rest = kF64 * (own + others_that_persist);
        const auto expect_rest = [&](const std::string& when) {
          const std::string where =
              fmt::format("{} ranks, rank {}, {}", ranks, rank.world.rank(), when);
          EXPECT_TRUE(live_bytes_are(rank.device, Purpose::Parameters, weights_at_rest)) << where;
          EXPECT_TRUE(live_bytes_are(rank.device, Purpose::Gradients, kF64 * own)) << where;
        };
        expect_rest("at first");
        fill(run, 0);
        rank.device.reset_peaks();
        Watch watch(run);
        run.step(1, &watch);
        expect_rest("after a step");

        const std::vector<LayerUnits> layers = layer_units(run.toy.model, run.toy.store->units());
        const GatherSchedule schedule =
            gather_schedule(layers, counts, gather, Turns::ForwardAndBackward);
        Bytes expected;
        for (const std::vector<std::size_t>& wanted : schedule) {
          expected.push_back(weights_at_rest);
          for (const std::size_t unit : wanted)
            if (owners[unit] != rank.world.rank()) expected.back() += kF64 * counts[unit];
        }
        EXPECT_EQ(watch.live, expected) << ranks << " ranks, rank " << rank.world.rank();
        EXPECT_EQ(rank.device.ledger()[Purpose::Parameters].peak_bytes,
                  *std::max_element(expected.begin(), expected.end()))
            << "what is not wanted is freed before anything comes";
        // Those that are being sent, and those of the layer below: the owner's grow in their place,
        // but for the second micro-batch's, which are added.
        const auto mine = [&](std::size_t u) { return owners[u] == rank.world.rank(); };
        std::int64_t first = 0, later = 0;
        for (std::size_t u = 0; u + 1 < counts.size(); ++u) {
          first = std::max(first, (mine(u) ? 0 : counts[u]) + (mine(u + 1) ? 0 : counts[u + 1]));
          later = std::max(later, counts[u] + counts[u + 1]);
        }
        EXPECT_EQ(rank.device.ledger()[Purpose::Gradients].peak_bytes, kF64 * (own + first));
        run.step(2);
        EXPECT_EQ(rank.device.ledger()[Purpose::Gradients].peak_bytes, kF64 * (own + later));

        rank.device.reset_peaks();
        LayerHook* const hooks[] = {run.reducer.get()};
        forward(run.toy.model, Tensor({1, 1}, DType::F64, rank.device), hooks);
        expect_rest("after an evaluation");
      });
}

// Neither with owners nor in slices: another stage, which has it too, counts it.
TEST(OwnersStep, NormIsOfWhatCountsHere) {
  for (const int ranks : {1, 2, 3})
    launch(late(ranks), [&](const Rank& rank) {
      for (const StepParts& parts : {owned(), sharded({.stage = 3})}) {
        ToyRun run(rank, odd_layers(), parts);
        run.toy.store->parameters()[1]->tied = Tied::Last;
        run.step(1);
        double squares = 0;
        for (const std::size_t unit : {0, 2, 3}) {
          double sum = 0;
          for (int r = 0; r < ranks; ++r) sum += toy::gradient(r, unit, 0);
          squares += static_cast<double>(run.toy.sizes[unit].count) * sum * sum;
        }
        EXPECT_EQ(run.reducer->norm({}), std::sqrt(squares)) << ranks << " ranks";
      }
    });
}

TEST(OwnersStep, OfMoreRanksThanUnitsSomeOwnNothing) {
  launch({.ranks = 7, .bind = false}, [](const Rank& rank) {
    const ToyRun run(rank, odd_layers(), owned());
    const auto& owners = dynamic_cast<const Owners&>(*run.reducer);
    const std::vector<int> expected = {1, 3, 0, 2};  // 192, 128, 128 and 64 elements
    for (std::size_t u = 0; u < 4; ++u) EXPECT_EQ(owners.owner(u), expected[u]);
    const auto r = static_cast<std::size_t>(rank.world.rank());
    const Bytes own = {192, 128, 128, 64, 0, 0, 0};
    EXPECT_TRUE(live_bytes_are(rank.device, Purpose::Parameters, kF64 * own[r]));
    EXPECT_EQ(run.reducer->slices().size(), own[r] > 0 ? 1U : 0U);
  });
}

TEST(OwnersStep, RefusesWhatItCannotDo) {
  launch({.ranks = 2, .bind = false}, [](const Rank& rank) {
    const ToyRun run(rank, odd_layers(), owned());
    DeferredGrads deferred;
    Saved saved;
    EXPECT_TRUE(error_says([&] { run.reducer->before_backward(3, {.deferred = &deferred}, saved); },
                           {"owners: gradients are freed behind a layer", "cannot be deferred"}));
    EXPECT_TRUE(error_says([&] { ToyRun(rank, odd_layers(), owned({.gather = {.live = 100}})); },
                           {"layer 0 reads 128 elements", "live is 100"}));
  });
}

}  // namespace
}  // namespace aisc
