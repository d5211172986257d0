// Recursive halving and doubling: values by the oracle of plans, who sends what to whom, and where
// the number of ranks is no power of two the pairs that fold.
#include "09_collectives/halving.h"

#include <gtest/gtest.h>

#include <bit>

#include "tests/09_collectives/plan_costs.h"
#include "tests/09_collectives/plan_pieces.h"
#include "tests/09_collectives/run_plans.h"

namespace aisc::plan_runs {
namespace {

// Number of those that go on, and of pairs.
std::int64_t power_below(int p) { return std::bit_floor(static_cast<unsigned>(p)); }
std::int64_t pairs(int p) { return p - power_below(p); }
bool is_power(int p) { return pairs(p) == 0; }

std::string sends(const PlanMaker& maker, CommOp op, std::int64_t count, int rank, int size) {
  return sends_of(maker(call(op, count), rank, size));
}

Ran run_reduce_scatter(int p, std::int64_t c, int = 0) {
  return run_call(CommOp::ReduceScatter, recursive_halving_reduce_scatter, p, c);
}

TEST(RecursiveHalving, LeavesTheSumOfItsChunkOnEachRank) {
  for_sizes_and_counts([](int p, std::int64_t c) { run_reduce_scatter(p, c); });
  for_drawn_sizes("RecursiveHalving", 70, 300, run_reduce_scatter);
}

TEST(RecursiveHalving, SendsAndAddsNoMoreThanARingInLogPSteps) {
  for (const int p : {2, 4, 8, 16, 64}) {
    SCOPED_TRACE(p);
    const Total total = run_reduce_scatter(p, 10).total;
    EXPECT_EQ(total.most.steps, log2_ceil(p)) << "steps of the rank that has most";
    EXPECT_EQ(total.rounds, log2_ceil(p)) << "steps until the last rank is done";
    EXPECT_EQ(total.most.messages, log2_ceil(p)) << "messages of the rank that sends most";
    EXPECT_EQ(total.most.elements, 10 * (p - 1)) << "elements sent by the rank that sends most";
    EXPECT_EQ(total.most.added, 10 * (p - 1)) << "elements added by the rank that adds most";
    EXPECT_EQ(total.sum.elements, 10 * p * (p - 1)) << "elements that all ranks send together";
  }
}

// With one element per chunk: rank 1 sends 3 the chunks 2 and 3, then 0 its chunk 0.
TEST(RecursiveHalving, HalvesWhatItSendsAndTheDistance) {
  const auto text = [](int rank) {
    return sends(recursive_halving_reduce_scatter, CommOp::ReduceScatter, 1, rank, 4);
  };
  EXPECT_EQ(text(0), "2: 2 | 1: 1")
      << "rank 0 of 4: what it sends, step by step (to whom: elements)";
  EXPECT_EQ(text(1), "3: 2 | 0: 1")
      << "rank 1 of 4: what it sends, step by step (to whom: elements)";
  EXPECT_EQ(text(2), "0: 2 | 3: 1")
      << "rank 2 of 4: what it sends, step by step (to whom: elements)";
  EXPECT_EQ(text(3), "1: 2 | 2: 1")
      << "rank 3 of 4: what it sends, step by step (to whom: elements)";
}

// Chunks of one element on four ranks, ones on rank 0, tens on rank 1, and so on.
TEST(RecursiveHalving, AddsByHand) {
  const auto plans = plans_of(recursive_halving_reduce_scatter, call(CommOp::ReduceScatter, 1), 4);
  std::vector<Memory> memory;
  for (const std::int64_t ten : {1, 10, 100, 1000})
    memory.push_back({{1 * ten, 2 * ten, 3 * ten, 4 * ten, kPoison}, {0, 4}, {4, 1}});
  run(plans, memory);
  expect_outs(memory, [](int r, std::int64_t) { return 1111 * (r + 1); });
}

// Of six ranks 1, 3, 4 and 5 go on, as numbers 0 to 3; 1 and 3 with two chunks each. In the first
// step 1 and 3 give away chunks 4 and 5, and get chunks 0 to 3.
TEST(RecursiveHalving, FoldsTheFirstRanksWherePIsNoPowerOfTwo) {
  const auto text = [](int rank) {
    return sends(recursive_halving_reduce_scatter, CommOp::ReduceScatter, 10, rank, 6);
  };
  EXPECT_EQ(text(0), "1: 60") << "rank 0 of 6: what it sends, step by step (to whom: elements)";
  EXPECT_EQ(text(1), "4: 20 | 3: 20 | 0: 10")
      << "rank 1 of 6: what it sends, step by step (to whom: elements)";
  EXPECT_EQ(text(2), "3: 60") << "rank 2 of 6: what it sends, step by step (to whom: elements)";
  EXPECT_EQ(text(3), "5: 20 | 1: 20 | 2: 10")
      << "rank 3 of 6: what it sends, step by step (to whom: elements)";
  EXPECT_EQ(text(4), "1: 40 | 5: 10")
      << "rank 4 of 6: what it sends, step by step (to whom: elements)";
  EXPECT_EQ(text(5), "3: 40 | 4: 10")
      << "rank 5 of 6: what it sends, step by step (to whom: elements)";
  EXPECT_EQ(run_reduce_scatter(6, 10).total.most.steps, 4)
      << "6 ranks: steps of the rank that has most";
}

// Everything that arrives, in a place of its own: half, a quarter, ..., and the partner's all.
TEST(RecursiveHalving, DoesNotAskForFarMoreScratchThanItNeeds) {
  for_sizes_and_counts([](int p, std::int64_t c) {
    expect_scratch(recursive_halving_reduce_scatter, call(CommOp::ReduceScatter, c), p,
                   [&](int) { return (2 * p + log2_ceil(p)) * c; });
  });
}

TEST(RecursiveHalving, SendsCountsThatNoIntHolds) {
  const Collective c = call(CommOp::ReduceScatter, kBeyondInt);
  EXPECT_EQ(elements_sent(recursive_halving_reduce_scatter, c, 4), 4 * 3 * kBeyondInt)
      << "elements that all ranks send, more than an int holds";
  EXPECT_EQ(elements_sent(recursive_halving_reduce_scatter, c, 6), (2 * 6 + 4 * 5) * kBeyondInt)
      << "elements that all ranks send, more than an int holds";
}

TEST(RecursiveHalving, CountsOnACommunicatorWhatThePlansSay) {
  for (const int p : {1, 2, 3, 6, 8, 13})
    expect_runs_as_planned(recursive_halving_reduce_scatter, call(CommOp::ReduceScatter, 12), p);
}

// By hand, for powers of two: L a + n (p - 1) / p (b + g).
TEST(RecursiveHalving, TakesTheLatencyOfATreeAndTheBytesOfARing) {
  for (int p = 2; p <= 64; p *= 2) {
    const double L = static_cast<double>(log2_ceil(p)), n = 256.0 * p;
    expect_all_end(
        recursive_halving_reduce_scatter, CommOp::ReduceScatter, p, 4 * 256 * p,
        L * exact::kAlpha + exact::bytes(n / p * (p - 1)) * (exact::kBeta + exact::kGamma));
  }
}

TEST(RecursiveDoublingAllGather, GivesEveryRankAllChunks) {
  for_sizes_and_counts([](int p, std::int64_t c) {
    const Total total = run_call(CommOp::AllGather, recursive_doubling_all_gather, p, c).total;
    EXPECT_EQ(total.sum.elements, p * (p - 1) * c)
        << "elements that all ranks send together";  // no rank receives anything twice
    EXPECT_EQ(total.sum.added, 0) << "elements that all ranks add together";
    if (c == 0 || p == 1) return;
    EXPECT_EQ(total.most.steps, log2_ceil(p) + (is_power(p) ? 0 : 1))
        << "steps of the rank that has most";
    EXPECT_EQ(total.rounds, total.most.steps) << "steps until the last rank is done";
  });
}

TEST(RecursiveDoublingAllGather, DoublesWhatItSendsAndTheDistance) {
  const auto text = [](int rank, int size) {
    return sends(recursive_doubling_all_gather, CommOp::AllGather, 1, rank, size);
  };
  EXPECT_EQ(text(0, 4), "1: 1 | 2: 2")
      << "rank 0 of 4: what it sends, step by step (to whom: elements)";
  EXPECT_EQ(text(3, 4), "2: 1 | 1: 2")
      << "rank 3 of 4: what it sends, step by step (to whom: elements)";
  EXPECT_EQ(text(0, 6), "1: 1") << "rank 0 of 6: what it sends, step by step (to whom: elements)";
  EXPECT_EQ(text(1, 6), "3: 2 | 4: 4 | 0: 5")
      << "rank 1 of 6: what it sends, step by step (to whom: elements)";
  EXPECT_EQ(text(3, 6), "1: 2 | 5: 4 | 2: 2, 2: 3")
      << "rank 3 of 6: what it sends, step by step (to whom: elements)";  // all but chunk 2
  EXPECT_EQ(text(4, 6), "5: 1 | 1: 2")
      << "rank 4 of 6: what it sends, step by step (to whom: elements)";
}

TEST(RecursiveDoublingAllGather, CountsOnACommunicatorWhatThePlansSay) {
  for (const int p : {1, 2, 3, 6, 8, 13})
    expect_runs_as_planned(recursive_doubling_all_gather, call(CommOp::AllGather, 12), p);
}

Total run_rabenseifner(int p, std::int64_t n, int = 0) {
  return run_call(CommOp::AllReduce, rabenseifner_all_reduce, p, n).total;
}

TEST(Rabenseifner, SumsOnEveryRank) {
  for_sizes_and_counts([](int p, std::int64_t n) { run_rabenseifner(p, n); });
  for_drawn_sizes("Rabenseifner", 70, 3000, run_rabenseifner);
}

TEST(Rabenseifner, GivesAllRanksTheSameBits) {
  for (const int p : kSizes) expect_same_bits(rabenseifner_all_reduce, p);
}

TEST(Rabenseifner, SendsTheBytesOfARingInTwiceLogPSteps) {
  for (const int p : {2, 4, 8, 16, 64}) {
    SCOPED_TRACE(p);
    const std::int64_t L = log2_ceil(p);
    const Total total = run_rabenseifner(p, 10 * p);
    EXPECT_EQ(total.most.steps, 2 * L) << "steps of the rank that has most";
    EXPECT_EQ(total.rounds, 2 * L) << "steps until the last rank is done";
    EXPECT_EQ(total.most.messages, 2 * L) << "messages of the rank that sends most";
    EXPECT_EQ(total.most.elements, 2 * 10 * (p - 1)) << "elements sent by the rank that sends most";
    EXPECT_EQ(total.sum.elements, p * total.most.elements)
        << "elements that all ranks send together";
    EXPECT_EQ(total.most.added, 10 * (p - 1)) << "elements added by the rank that adds most";
  }
}

// Whatever n is: a rank receives every other number's chunk twice, and a folded rank all.
TEST(Rabenseifner, SendsNothingTwice) {
  for_sizes_and_counts([](int p, std::int64_t n) {
    const Total total = run_rabenseifner(p, n);
    EXPECT_EQ(total.sum.elements, 2 * (p - 1) * n) << "elements that all ranks send together";
    EXPECT_EQ(total.sum.added, (p - 1) * n) << "elements that all ranks add together";
    if (n < p || p == 1) return;  // steps without a message vanish
    EXPECT_EQ(total.most.steps,
              2 * log2_ceil(static_cast<int>(power_below(p))) + (is_power(p) ? 0 : 2))
        << "steps of the rank that has most";
  });
}

TEST(Rabenseifner, HalvesAndThenDoubles) {
  const auto text = [](int rank, int size) {
    return sends(rabenseifner_all_reduce, CommOp::AllReduce, 8, rank, size);
  };
  EXPECT_EQ(text(0, 4), "2: 4 | 1: 2 | 1: 2 | 2: 4")
      << "rank 0 of 4: what it sends, step by step (to whom: elements)";
  EXPECT_EQ(text(3, 4), "1: 4 | 2: 2 | 2: 2 | 1: 4")
      << "rank 3 of 4: what it sends, step by step (to whom: elements)";
  // Of six ranks 1, 3, 4 and 5 go on, over four chunks.
  EXPECT_EQ(text(0, 6), "1: 8") << "rank 0 of 6: what it sends, step by step (to whom: elements)";
  EXPECT_EQ(text(1, 6), "4: 4 | 3: 2 | 3: 2 | 4: 4 | 0: 8")
      << "rank 1 of 6: what it sends, step by step (to whom: elements)";
  EXPECT_EQ(text(4, 6), "1: 4 | 5: 2 | 5: 2 | 1: 4")
      << "rank 4 of 6: what it sends, step by step (to whom: elements)";
}

TEST(Rabenseifner, CutsAsChunkOfDoes) {
  EXPECT_EQ(pieces_sent(rabenseifner_all_reduce(all_reduce(11), 1, 4)), "[5,11) [0,2) [2,5) [0,5)")
      << "the pieces that the rank sends, in order, from their first element on";
}

TEST(Rabenseifner, DoesNotAskForFarMoreScratchThanItNeeds) {
  for_sizes_and_counts([](int p, std::int64_t n) {
    expect_scratch(rabenseifner_all_reduce, all_reduce(n), p, [&](int) { return n; });
  });
}

TEST(Rabenseifner, SendsCountsThatNoIntHolds) {
  for (const int p : {4, 6})
    EXPECT_EQ(elements_sent(rabenseifner_all_reduce, all_reduce(kBeyondInt), p),
              2 * (p - 1) * kBeyondInt)
        << "elements that all ranks send, more than an int holds";
}

TEST(Rabenseifner, CountsOnACommunicatorWhatThePlansSay) {
  for (const int p : {1, 2, 3, 6, 8, 13})
    expect_runs_as_planned(rabenseifner_all_reduce, all_reduce(64), p);
}

// 2 L a + 2 n (q - 1) / q b + n (q - 1) / q g; where pairs fold, n before, which is added, and
// after.
TEST(Rabenseifner, TakesTheTimeOfItsFormulaFor2To64Ranks) {
  for (const Network& network : plan_costs::flat_networks())
    for (int p = 2; p <= 64; ++p) {
      SCOPED_TRACE(testing::Message() << p << " ranks, " << plan_costs::text_of(network));
      const auto [alpha, beta] = network.link;
      const double gamma = network.reduce_seconds_per_byte;
      const auto q = static_cast<double>(power_below(p));
      const auto L = static_cast<double>(log2_ceil(static_cast<int>(power_below(p))));
      const double n = 4 * 64 * q, all_but_one = n / q * (q - 1), folded = is_power(p) ? 0 : n;
      const std::int64_t folds = is_power(p) ? 0 : 1, steps = 2 * static_cast<std::int64_t>(L);
      const Cost found = plan_costs::counted(rabenseifner_all_reduce, CommOp::AllReduce, p,
                                             static_cast<std::int64_t>(n), network);
      plan_costs::expect_equal(
          found, {.steps = steps + 2 * folds,
                  .messages = steps + folds,
                  .bytes = 2 * all_but_one + folded,
                  .added_bytes = all_but_one + folded,
                  .total_bytes = 2 * (p - 1) * n,
                  .seconds = 2 * L * alpha + 2 * all_but_one * beta + all_but_one * gamma +
                             static_cast<double>(folds) * 2 * alpha + folded * (2 * beta + gamma)});
    }
}

}  // namespace
}  // namespace aisc::plan_runs
