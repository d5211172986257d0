// Weights that come and go: what is whole when, what it holds, and what memory it takes.
#include "04_sharding/gathered_weights.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "04_sharding/shards.h"
#include "common/comm/launch.h"
#include "tests/support/late_comm.h"
#include "tests/support/ledger_checks.h"
#include "tests/support/numbers.h"
#include "tests/support/toy_model.h"

namespace aisc {
namespace {

// Element i of unit u: as the whole model has it.
double weight(std::size_t unit, std::int64_t i) {
  return static_cast<double>(1000 * (unit + 1)) + static_cast<double>(i);
}

// Three layers of a unit each: 100, 64 and 130 elements, padded for the ranks.
struct Weights {
  Weights(const Rank& rank, const GatherSchedule& schedule, std::int64_t persist = 0)
      : toy(rank, {{.count = 100}, {.count = 64}, {.count = 130}},
            {.ranks = rank.world.size(), .values = false}),
        parts(rank, *toy.store),
        gathered(rank, *toy.store, parts,
                 {.reads = {{0}, {1}, {2}},
                  .training = schedule,
                  .evaluation = {{0}, {1}, {2}},
                  .persist = persist}) {
    fill(0);
    gathered.take_parts();
  }
  void fill(double more) {
    const FlatLayout& layout = toy.store->layout();
    for (std::size_t u = 0; u < 3; ++u) {
      const Range shard = layout.shard(u, toy.rank.world.rank());
      const Range own = own_range(layout, u, toy.rank.world.size());
      for (std::int64_t i = 0; i < own.count(); ++i)
        parts.shards().data<double>()[own.begin + i] =
            weight(u, shard.begin - layout.units()[u].range.begin + i) + more;
    }
  }
  std::int64_t count(std::size_t unit) const {
    return toy.store->layout().units()[unit].range.count();
  }
  // The layer's unit is whole, and holds every rank's part.
  void expect_weights(std::size_t unit, double more = 0) const {
    std::vector<double> expected;
    for (std::int64_t i = 0; i < count(unit); ++i) expected.push_back(weight(unit, i) + more);
    const std::string where = fmt::format("{} ranks, rank {}: weights of unit {}",
                                          toy.rank.world.size(), toy.rank.world.rank(), unit);
    EXPECT_TRUE(numbers_are(where, toy.store->values(unit), expected));
  }
  // "0 2": what is whole, or on its way.
  std::string whole() const {
    std::string said;
    for (std::size_t u = 0; u < 3; ++u)
      if (gathered.is_whole(u)) said += (said.empty() ? "" : " ") + std::to_string(u);
    return said;
  }

  toy::Toy toy;
  SlicedWeights parts;
  GatheredWeights gathered;
};

// Turns 0, 1, 2 forward, then backward of layers 2, 1, 0.
const GatherSchedule kAhead = {{0, 1}, {1, 2}, {2}, {2, 1}, {1, 0}, {0}};
const GatherSchedule kNoneAhead = {{0}, {1}, {2}, {2}, {1}, {0}};

TEST(GatherUseFree, EachLayerFindsItsWeightsByHand) {
  launch(late(2), [](const Rank& rank) {
    Weights w(rank, kNoneAhead);
    EXPECT_EQ(w.whole(), "") << "nothing is whole before the first layer";
    for (std::size_t layer = 0; layer < 3; ++layer) {
      w.gathered.turn_to(layer, {});
      EXPECT_EQ(w.whole(), std::to_string(layer)) << "during forward of layer " << layer;
      w.expect_weights(layer);
    }
    for (std::size_t layer = 3; layer-- > 0;) {
      w.gathered.turn_to(layer, {.backward = true});
      EXPECT_EQ(w.whole(), std::to_string(layer)) << "during backward of layer " << layer;
      w.expect_weights(layer);
    }
    EXPECT_EQ(rank.world.stats()[CommOp::AllGather].calls, 5)
        << "3 in forward and 2 in backward: the last layer's unit is there already";
  });
}

TEST(GatherUseFree, OfAnyRanks) {
  for (const int ranks : {1, 2, 3, 4, 7})
    launch(late(ranks), [](const Rank& rank) {
      Weights w(rank, kAhead);
      for (const bool backward : {false, true})
        for (std::size_t i = 0; i < 3; ++i) {
          const std::size_t layer = backward ? 2 - i : i;
          w.gathered.turn_to(layer, {.backward = backward});
          w.expect_weights(layer);
        }
    });
}

// What is ahead is launched before the layer computes, and nobody waits for it.
TEST(GatherUseFree, WhatIsAheadIsOnItsWay) {
  launch(late(2), [](const Rank& rank) {
    Weights w(rank, kAhead);
    w.gathered.turn_to(0, {});
    EXPECT_EQ(rank.world.stats()[CommOp::AllGather].calls, 2) << "unit 0, and unit 1 ahead of it";
    EXPECT_EQ(w.whole(), "0 1");
    EXPECT_THROW(w.toy.store->values(1), Error) << "unit 1 was waited for: it only had to be sent";
    w.gathered.turn_to(1, {});
    w.expect_weights(1);
    EXPECT_EQ(w.whole(), "1 2") << "unit 0 is no longer wanted";
  });
}

// Never more than the schedule says: also while the next one's units come.
TEST(GatherUseFree, MemoryIsFreedBeforeMoreIsTaken) {
  launch(late(2), [](const Rank& rank) {
    Weights w(rank, kAhead);
    const std::int64_t own = 8 * (w.count(0) + w.count(1) + w.count(2)) / 2;
    const auto live = [&] { return rank.device.ledger()[Purpose::Parameters].live_bytes; };
    EXPECT_EQ(live(), own);
    for (std::size_t turn = 0; turn < kAhead.size(); ++turn) {
      rank.device.reset_peaks();
      const std::int64_t before = live();
      w.gathered.turn_to(turn < 3 ? turn : 5 - turn, {.backward = turn >= 3});
      std::int64_t wanted = own;
      for (const std::size_t unit : kAhead[turn]) wanted += 8 * w.count(unit);
      EXPECT_EQ(live(), wanted) << "turn " << turn;
      EXPECT_LE(rank.device.ledger()[Purpose::Parameters].peak_bytes, std::max(before, wanted))
          << "turn " << turn << ": what is not wanted is freed before anything is gathered";
    }
    w.gathered.release();
    EXPECT_EQ(live(), own);
  });
}

// Several micro-batches in one turn (layered accumulation) gather once.
TEST(GatherUseFree, ASecondPassOverALayerGathersNothing) {
  launch(late(2), [](const Rank& rank) {
    Weights w(rank, kNoneAhead);
    w.gathered.turn_to(0, {});
    w.gathered.turn_to(0, {});
    EXPECT_EQ(rank.world.stats()[CommOp::AllGather].calls, 1);
    w.expect_weights(0);
  });
}

TEST(GatherUseFree, UnitsThatPersistStay) {
  launch(late(2), [](const Rank& rank) {
    Weights w(rank, {{0}, {}, {2}, {2}, {}, {0}}, 128);  // units of 128, 128 and 256 elements
    EXPECT_EQ(w.whole(), "0 1");
    const std::int64_t before = rank.world.stats()[CommOp::AllGather].calls;
    w.gathered.turn_to(2, {});
    EXPECT_EQ(w.whole(), "0 1 2") << "a unit that persists is never freed";
    w.gathered.turn_to(1, {.backward = true});
    w.expect_weights(1);
    EXPECT_EQ(w.whole(), "0 1");
    EXPECT_EQ(rank.world.stats()[CommOp::AllGather].calls, before + 1)
        << "and never gathered again";
  });
}

TEST(GatherUseFree, EvaluationHasItsOwnSchedule) {
  launch(late(2), [](const Rank& rank) {
    Weights w(rank, kAhead);
    for (std::size_t layer = 0; layer < 3; ++layer) {
      w.gathered.turn_to(layer, {.training = false});
      EXPECT_EQ(w.whole(), std::to_string(layer));
      w.expect_weights(layer);
    }
  });
}

// The weights of the step before are no weights: what is gathered after an update is new.
TEST(GatherUseFree, AfterAnUpdateWeightsAreNew) {
  for (const std::int64_t persist : {0, 128})  // none persists; units 0 and 1 do
    launch(late(2), [&](const Rank& rank) {
      Weights w(rank, kAhead, persist);
      w.gathered.turn_to(0, {});
      w.fill(0.5);
      w.gathered.take_parts();
      for (std::size_t layer = 0; layer < 3; ++layer) {
        w.gathered.turn_to(layer, {});
        w.expect_weights(layer, 0.5);
      }
    });
}

TEST(GatheredWeightsGiven, LeaveNothingBehind) {
  launch({.ranks = 2, .bind = false}, [](const Rank& rank) {
    const NoLeak none(rank.device);
    const Weights w(rank, kAhead, 128);
  });
}

}  // namespace
}  // namespace aisc
