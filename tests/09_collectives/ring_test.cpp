// Rings over any order of the ranks, alone and several at once.
#include "09_collectives/ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "common/core/rng.h"
#include "tests/09_collectives/plan_pieces.h"
#include "tests/09_collectives/run_plans.h"

namespace aisc::plan_runs {
namespace {

using testing::HasSubstr;

// 0 .. p - 1.
Ring ordered(int p) {
  Ring ring(static_cast<std::size_t>(p));
  std::iota(ring.begin(), ring.end(), 0);
  return ring;
}
Ring backwards(int p) {
  Ring ring = ordered(p);
  std::reverse(ring.begin(), ring.end());
  return ring;
}
// Another order for each `number`, and each seed.
Ring shuffled(int p, std::uint64_t number) {
  const Philox random(test_seed(), "order of a ring", number);
  Ring ring = ordered(p);
  for (std::size_t r = ring.size() - 1; r > 0; --r)
    std::swap(ring[r], ring[random.below(r, r + 1)]);
  return ring;
}

PlanMaker along(const Ring& ring) {
  return
      [ring](const Collective& c, int rank, int) { return ring_all_reduce_along(c, rank, ring); };
}

void expect_sums(const PlanMaker& maker, int p, std::int64_t n) {
  run_call(CommOp::AllReduce, maker, p, n);
}

// "the ring 0 2 1"
std::string ring_in_words(const Ring& ring) {
  std::string text = "the ring";
  for (const int rank : ring) text += " " + std::to_string(rank);
  return text;
}

TEST(RingAllReduceAlong, AddsThreeRanksWorkedOutByHand) {
  EXPECT_EQ(outputs(along({0, 2, 1}), all_reduce(3), {{1, 2, 3}, {10, 20, 30}, {100, 200, 300}}),
            (Rows(3, {111, 222, 333})))
      << "the ring 0 2 1, three elements: ranks that begin with 1 2 3, ten and a hundred times "
         "that: "
         "what each ends with";
  if (testing::Test::HasFailure()) return;
  SCOPED_TRACE("the ring 0 2 1, four elements");
  EXPECT_EQ(outputs(along({0, 2, 1}), all_reduce(4),
                    {{1, 2, 3, 4}, {10, 20, 30, 40}, {100, 200, 300, 400}}),
            (Rows(3, {111, 222, 333, 444})))
      << "ranks that begin with 1 2 3 4, ten and a hundred times that: what each ends with";
}

TEST(RingAllReduceAlong, SumsOnEveryRankInAnyOrder) {
  for_sizes_and_counts([](int p, std::int64_t n) {
    for (const Ring& ring : {ordered(p), backwards(p), shuffled(p, 1)}) {
      SCOPED_TRACE(ring_in_words(ring));
      expect_sums(along(ring), p, n);
    }
  });
  for_drawn_sizes("RingAllReduceAlong", 20, 3000, [](int p, std::int64_t n, int) {
    const Ring ring = shuffled(p, static_cast<std::uint64_t>(n));
    SCOPED_TRACE(ring_in_words(ring));
    expect_sums(along(ring), p, n);
  });
}

TEST(RingAllReduceAlong, GivesAllRanksTheSameBitsAsAnyRingInThatOrder) {
  for (const int p : kSizes) {
    const auto bits = expect_same_bits(along(ordered(p)), p);
    EXPECT_EQ(bits, expect_same_bits(ring_all_reduce, p)) << p << " ranks";
    expect_same_bits(along(shuffled(p, 2)), p);
  }
}

TEST(RingAllReduceAlong, SendsToTheNextAndReceivesFromTheOneBefore) {
  for (const int p : {2, 3, 7, 16}) {
    const Ring ring = shuffled(p, 3);
    SCOPED_TRACE(ring_in_words(ring));
    for (int i = 0; i < p; ++i) {
      const auto at = [&](int k) { return ring[static_cast<std::size_t>((k + p) % p)]; };
      const Plan plan = ring_all_reduce_along(all_reduce(4 * p), at(i), ring);
      const std::size_t times = 2 * (ring.size() - 1);
      EXPECT_EQ(receivers(plan), std::vector<int>(times, at(i + 1)))
          << "rank " << at(i) << ": the ranks that it sends to, step by step";
      EXPECT_EQ(senders(plan), std::vector<int>(times, at(i - 1)))
          << "rank " << at(i) << ": the ranks that it receives from, step by step";
    }
  }
}

// Position i sends in the first half all chunks but i + 1, in the second all but i + 2.
TEST(RingAllReduceAlong, SendsTwiceTheBufferLessTwoChunksIn2PMinus2Steps) {
  for_sizes_and_counts([](int p, std::int64_t n) {
    const Ring ring = shuffled(p, 4);
    SCOPED_TRACE(ring_in_words(ring));
    for (int i = 0; i < p; ++i) {
      const int rank = ring[static_cast<std::size_t>(i)];
      const Traffic t = traffic_of(ring_all_reduce_along(all_reduce(n), rank, ring));
      EXPECT_EQ(t.elements, 2 * n - chunk_count(n, i + 1, p) - chunk_count(n, i + 2, p))
          << "rank " << rank << ": elements that it sends";
      EXPECT_EQ(t.added, n - chunk_count(n, i, p)) << "rank " << rank << ": elements that it adds";
      if (n < p) continue;  // empty chunks are not sent
      EXPECT_EQ(t.messages, 2 * (p - 1)) << "rank " << rank << ": messages that it sends";
      EXPECT_EQ(t.steps, 2 * (p - 1)) << "rank " << rank << ": steps";
    }
  });
}

TEST(RingAllReduceAlong, DoesNotAskForFarMoreScratchThanItNeeds) {
  for_sizes_and_counts([](int p, std::int64_t n) {
    expect_scratch(along(shuffled(p, 7)), all_reduce(n), p,
                   [&](int) { return (n + p - 1) / p; });  // the longest chunk
  });
}

TEST(RingAllReduceAlong, SendsCountsThatNoIntHolds) {
  EXPECT_EQ(elements_sent(along({0, 2, 1}), all_reduce(kBeyondInt), 3), 2 * 2 * kBeyondInt)
      << "elements that all ranks send, more than an int holds";
}

TEST(RingAllReduceAlong, RunsAsPlannedOnThreads) {
  for (const int p : {1, 2, 3, 7, 16})
    for (const std::int64_t n : {3, 100})
      expect_runs_as_planned(along(shuffled(p, 5)), all_reduce(n), p);
}

TEST(RingAllReduceAlong, TakesTheTimeOfItsFormulaFor1To64Ranks) {
  for (int p = 1; p <= 64 && !testing::Test::HasFailure(); ++p)
    for (const std::int64_t chunk : {1, 256, 4096})
      EXPECT_EQ(simulated_seconds(along(shuffled(p, 6)), all_reduce(p * chunk), p),
                (p - 1) * (2 * exact::message(static_cast<double>(chunk)) +
                           exact::bytes(static_cast<double>(chunk)) * exact::kGamma))
          << p << " ranks, chunks of " << chunk;
}

TEST(RingAllReduceAlong, RejectsOrdersThatAreNotOfEveryRankOnce) {
  const auto message = [](const Ring& ring) {
    return message_of([&] { (void)ring_all_reduce_along(all_reduce(4), 0, ring); });
  };
  const auto expect_refused = [&](const Ring& ring, const std::string& words) {
    if (testing::Test::HasFailure()) return;  // who does not look at rings may end in a crash
    const std::string error = message(ring);
    EXPECT_TRUE(error.find(words) != std::string::npos)
        << ring_in_words(ring) << (ring.empty() ? " of no ranks" : "") << " is to be refused with "
        << "an Error that says '" << words << "'; it says '" << error << "'";
  };
  expect_refused({0, 1, 3}, "ring of 3: rank 3 is not one of [0, 3)");
  expect_refused({0, -1, 2}, "ring of 3: rank -1 is not one of [0, 3)");
  expect_refused({0, 2, 1, 2}, "ring of 4: rank 2 is there twice");
  expect_refused({}, "no ranks");
}

// Rings of all kinds: the same twice, opposite directions, and others.
std::vector<Ring> rings_of(int p, int m) {
  std::vector<Ring> rings{ordered(p), ordered(p), backwards(p)};
  for (int k = 3; k < m; ++k) rings.push_back(shuffled(p, static_cast<std::uint64_t>(k)));
  rings.resize(static_cast<std::size_t>(m));
  return rings;
}

TEST(AllReduceAlong, SumsOnEveryRank) {
  for (int m = 1; m <= 5 && !testing::Test::HasFailure(); ++m) {
    for_sizes_and_counts([m](int p, std::int64_t n) {
      SCOPED_TRACE(testing::Message() << m << " rings");
      expect_sums(all_reduce_along(rings_of(p, m)), p, n);
    });
    for (std::int64_t n = 0; n < 40; ++n) {
      SCOPED_TRACE(testing::Message() << m << " rings, count " << n);
      for (const int p : {2, 3, 5}) expect_sums(all_reduce_along(rings_of(p, m)), p, n);
    }
  }
}

TEST(AllReduceAlong, EachRingCarriesItsPart) {
  constexpr int p = 5, m = 3;
  constexpr std::int64_t n = 101;
  const std::vector<Ring> rings{ordered(p), backwards(p), {0, 2, 4, 1, 3}};
  for (int r = 0; r < p; ++r) {
    const Plan plan = all_reduce_along(rings)(all_reduce(n), r, p);
    for (int k = 0; k < m; ++k) {
      const Ring& ring = rings[static_cast<std::size_t>(k)];
      const auto i = std::find(ring.begin(), ring.end(), r) - ring.begin();
      const int next = ring[static_cast<std::size_t>((i + 1) % p)];
      const Piece part = chunk_of(Where::Out, n, k, m);
      int messages = 0;
      for (const PlanAction& action : plan.actions) {
        if (action.kind != PlanAction::Kind::Send || action.peer != next) continue;
        ++messages;
        EXPECT_EQ(action.from.where, Where::Out);
        EXPECT_GE(action.from.begin, part.begin) << "rank " << r << ", ring " << k;
        EXPECT_LE(action.from.begin + action.from.count, part.begin + part.count)
            << "rank " << r << ", ring " << k;
      }
      EXPECT_EQ(messages, 2 * (p - 1)) << "rank " << r << ", ring " << k;
    }
  }
}

TEST(AllReduceAlong, ShortBuffersUseAsManyRingsAsHaveAnElementPerRank) {
  const auto receivers_of = [](std::int64_t n) {
    std::vector<int> all = receivers(all_reduce_along(rings_of(5, 3))(all_reduce(n), 0, 5));
    return all.size() / 8;  // messages of a ring
  };
  EXPECT_EQ(receivers_of(5), 1u);
  EXPECT_EQ(receivers_of(9), 1u);
  EXPECT_EQ(receivers_of(10), 2u);
  EXPECT_EQ(receivers_of(14), 2u);
  EXPECT_EQ(receivers_of(15), 3u);
  EXPECT_EQ(receivers_of(500), 3u);
}

TEST(AllReduceAlong, GivesAllRanksTheSameBits) {
  for (const int p : kSizes) expect_same_bits(all_reduce_along(rings_of(p, 4)), p);
}

TEST(AllReduceAlong, RunsAsPlannedOnThreads) {
  for (const int p : {1, 2, 3, 7})
    for (const std::int64_t n : {3, 100})
      expect_runs_as_planned(all_reduce_along(rings_of(p, 4)), all_reduce(n), p);
}

// A rank has one link out, which all rings pass: nothing is won.
TEST(AllReduceAlong, TakesAsLongAsOneRingWhereARankHasOneLink) {
  for (const int p : kSizes) {
    const std::int64_t n = 12 * p;
    EXPECT_EQ(simulated_seconds(all_reduce_along(rings_of(p, 4)), all_reduce(n), p),
              simulated_seconds(all_reduce_along({ordered(p)}), all_reduce(n), p))
        << p << " ranks";
  }
}

// Cables between neighbours: wire r leads from r to r + 1, wire p + r from r + 1 to r.
Network cables_round(int p) {
  Network network{.reduce_seconds_per_byte = exact::kGamma};
  const auto ranks = static_cast<std::size_t>(p);
  network.wire_seconds_per_byte.assign(2 * ranks, exact::kBeta);
  network.routes.assign(ranks * ranks, {.latency_seconds = exact::kAlpha});
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::size_t next = (r + 1) % ranks;
    network.routes[r * ranks + next].wires = {static_cast<int>(r)};
    network.routes[next * ranks + r].wires = {static_cast<int>(ranks + r)};
  }
  return network;
}

TEST(AllReduceAlong, OppositeDirectionsHalveTheBytesWhereEachHasItsOwnWires) {
  for (const int p : {3, 4, 5, 8, 16, 33}) {
    const double chunk = 512;  // of one ring alone
    const Collective c = all_reduce(512 * p);
    const Network network = cables_round(p);
    const double added = (p - 1) * exact::bytes(chunk) * exact::kGamma;
    EXPECT_EQ(simulated_seconds(all_reduce_along({ordered(p)}), c, p, network),
              2 * (p - 1) * exact::message(chunk) + added)
        << p << " ranks";
    EXPECT_EQ(simulated_seconds(all_reduce_along({ordered(p), backwards(p)}), c, p, network),
              2 * (p - 1) * exact::message(chunk / 2) + added)
        << p << " ranks";
  }
}

TEST(Rings, NaturalRingIsTheOrderOfTheRanks) {
  EXPECT_EQ(natural_ring(1), Ring{0});
  EXPECT_EQ(natural_ring(5), (Ring{0, 1, 2, 3, 4}));
}

TEST(Rings, ThatDoNotFitTogetherAreRejected) {
  const auto message = [](const std::vector<Ring>& rings) {
    return message_of([&] { (void)all_reduce_along(rings); });
  };
  EXPECT_THAT(message({}), HasSubstr("all_reduce_along: no rings"));
  EXPECT_THAT(message({{0, 1}, {}}), HasSubstr("ring: no ranks"));
  EXPECT_THAT(message({{0, 1}, {1, 1}}), HasSubstr("ring of 2: rank 1 is there twice"));
  EXPECT_THAT(message({{0, 1, 2}, {1, 0}}), HasSubstr("rings of 3 and of 2 ranks"));
}

TEST(Rings, OfAnotherNumberOfRanksThanTheCallAreRejected) {
  EXPECT_EQ(message_of([] {
              (void)all_reduce_along({{0, 1, 2}})(all_reduce(4), 0, 4);
            }),
            "all_reduce_along: rings of 3 ranks, the call is of 4");
}

}  // namespace
}  // namespace aisc::plan_runs
