// The two trees against their published parents and their invariants; the sum over both: values,
// traffic, and the exact time of pieces that keep all links at work.
#include "09_collectives/double_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/09_collectives/plan_pieces.h"
#include "tests/09_collectives/run_plans.h"
#include "tests/09_collectives/tree_oracle.h"

namespace aisc::plan_runs {
namespace {

using tree_oracle::at;
using tree_oracle::Tree;

// ---- the trees

Tree tree_of(TreeNode (*node)(int, int), int size) {
  Tree tree;
  for (int r = 0; r < size; ++r) tree.push_back(node(r, size));
  return tree;
}
std::vector<int> parents(const Tree& tree) {
  std::vector<int> all;
  for (const TreeNode& node : tree) all.push_back(node.parent);
  return all;
}

// Rank by rank, so that it says which.
void expect_same(TreeNode (*node)(int, int), const Tree& expected) {
  const int size = static_cast<int>(expected.size());
  for (int r = 0; r < size; ++r)
    ASSERT_EQ(node(r, size), at(expected, r)) << "rank " << r << " of " << size;
}

// One root, from which everyone is at most log2 n edges away, and who has a child is its parent.
// Returns what is wrong, or nothing.
std::string fault_of(const Tree& tree) {
  const int size = static_cast<int>(tree.size());
  const auto says = [&](int rank, const std::string& what) {
    return "rank " + std::to_string(rank) + " of " + std::to_string(size) + " " + what;
  };
  int roots = 0, deepest = 0;
  for (int r = 0; r < size; ++r) {
    const TreeNode& node = at(tree, r);
    if (node.parent < -1 || node.parent >= size) return says(r, "has a parent that is no rank");
    if (node.parent < 0) ++roots;
    if (node.parent >= 0) {
      const auto& of_parent = at(tree, node.parent).children;
      if (of_parent[0] != r && of_parent[1] != r) return says(r, "is no child of its parent");
    }
    for (const int child : node.children) {
      if (child < -1 || child >= size) return says(r, "has a child that is no rank");
      if (child >= 0 && at(tree, child).parent != r) return says(r, "has the child of another");
    }
    const auto [low, high] = node.children;
    if (high >= 0 && low >= high) return says(r, "has its children in the wrong order");
    int depth = 0;
    for (int up = r; at(tree, up).parent >= 0 && depth <= size; up = at(tree, up).parent) ++depth;
    deepest = std::max(deepest, depth);
  }
  if (roots != 1) return std::to_string(roots) + " roots of " + std::to_string(size);
  if (deepest != log2_ceil(size)) return says(deepest, "as its depth");
  return "";
}

TEST(FirstTree, HasThePublishedParents) {
  EXPECT_EQ(parents(tree_of(first_tree, 4)), (std::vector<int>{-1, 2, 0, 2}))
      << "first tree of 4 ranks: each rank's parent, -1: none";
  EXPECT_EQ(parents(tree_of(first_tree, 5)), (std::vector<int>{-1, 2, 4, 2, 0}))
      << "first tree of 5 ranks: each rank's parent, -1: none";
  EXPECT_EQ(parents(tree_of(first_tree, 8)), (std::vector<int>{-1, 2, 4, 2, 0, 6, 4, 6}))
      << "first tree of 8 ranks: each rank's parent, -1: none";
}

// 4 would have the children 2 and 6; of six ranks 5, whose parent 6 would be, takes that place.
TEST(FirstTree, HasTheChildrenThatAPersonDraws) {
  EXPECT_EQ(first_tree(0, 6), (TreeNode{-1, {4, -1}})) << "first tree, rank 0 of 6; -1: none";
  EXPECT_EQ(first_tree(4, 6), (TreeNode{0, {2, 5}})) << "first tree, rank 4 of 6; -1: none";
  EXPECT_EQ(first_tree(2, 6), (TreeNode{4, {1, 3}})) << "first tree, rank 2 of 6; -1: none";
  EXPECT_EQ(first_tree(5, 6), (TreeNode{4, {-1, -1}})) << "first tree, rank 5 of 6; -1: none";
  EXPECT_EQ(first_tree(4, 5), (TreeNode{0, {2, -1}}))
      << "first tree, rank 4 of 5; -1: none";  // one child alone stands first
  EXPECT_EQ(first_tree(0, 1), TreeNode{}) << "first tree, rank 0 of 1; -1: none";
}

TEST(FirstTree, IsOneTreeOfLogarithmicDepthForUpTo1024Ranks) {
  for (int size = 1; size <= 1024; ++size) {
    const std::string fault = fault_of(tree_of(first_tree, size));
    ASSERT_TRUE(fault.empty()) << size << " ranks: " << fault;
  }
}

TEST(FirstTree, HasTheRanksOnItsLeftAndRightBelowARank) {
  for (int size = 1; size <= 130; ++size) expect_same(first_tree, tree_oracle::first_of(size));
  const int size = static_cast<int>(drawn("ranks of FirstTree", 1025, 5000));
  expect_same(first_tree, tree_oracle::first_of(size));
}

TEST(SecondTree, HasThePublishedParents) {
  EXPECT_EQ(parents(tree_of(second_tree, 4)), (std::vector<int>{1, 3, 1, -1}))
      << "second tree of 4 ranks: each rank's parent, -1: none";
  EXPECT_EQ(parents(tree_of(second_tree, 5)), (std::vector<int>{1, -1, 3, 0, 3}))
      << "second tree of 5 ranks: each rank's parent, -1: none";
  EXPECT_EQ(parents(tree_of(second_tree, 8)), (std::vector<int>{1, 3, 1, 7, 5, 3, 5, -1}))
      << "second tree of 8 ranks: each rank's parent, -1: none";
}

TEST(SecondTree, ListsTheSmallerChildFirst) {
  EXPECT_EQ(second_tree(1, 6), (TreeNode{5, {0, 3}}))
      << "second tree, rank 1 of 6; -1: none";  // mirrored: ranks 2 and 5 below 4
  EXPECT_EQ(second_tree(5, 7), (TreeNode{1, {0, 3}}))
      << "second tree, rank 5 of 7; -1: none";  // turned: 2 and 6 below 4
  EXPECT_EQ(second_tree(0, 7), (TreeNode{5, {6, -1}})) << "second tree, rank 0 of 7; -1: none";
  EXPECT_EQ(second_tree(0, 1), TreeNode{}) << "second tree, rank 0 of 1; -1: none";
}

TEST(SecondTree, IsOneTreeOfLogarithmicDepthForUpTo1024Ranks) {
  for (int size = 1; size <= 1024; ++size) {
    const std::string fault = fault_of(tree_of(second_tree, size));
    ASSERT_TRUE(fault.empty()) << size << " ranks: " << fault;
  }
}

TEST(SecondTree, IsTheFirstMirroredOrTurned) {
  for (int size = 1; size <= 130; ++size) expect_same(second_tree, tree_oracle::second_of(size));
  for (const int odd : {0, 1}) {
    const int size = static_cast<int>(drawn("ranks of SecondTree", 512, 2500)) * 2 + odd;
    expect_same(second_tree, tree_oracle::second_of(size));
  }
}

// What the pair is for. Of an odd number of ranks rank 0 has one child in each tree.
TEST(SecondTree, GivesNobodyMoreThanTwoChildrenInBothTrees) {
  for (int size = 2; size <= 1024; ++size) {
    const Tree first = tree_oracle::first_of(size), second = tree_of(second_tree, size);
    for (int r = 0; r < size; ++r) {
      const int in_first = tree_oracle::children_of(at(first, r));
      const int in_second = tree_oracle::children_of(at(second, r));
      ASSERT_LE(in_first + in_second, 2) << "rank " << r << " of " << size;
      ASSERT_EQ(in_first > 0 && in_second > 0, size % 2 == 1 && r == 0)
          << "rank " << r << " of " << size;
    }
  }
}

// ---- the sum

PlanMaker in_segments(int segments) {
  return [=](const Collective& c, int rank, int size) {
    return double_tree_all_reduce(c, rank, size, segments);
  };
}

// Of `size` ranks all have the sum; returns the plans.
std::vector<Plan> expect_sums(int size, std::int64_t count, int segments) {
  SCOPED_TRACE(testing::Message() << size << " ranks, " << count << " in " << segments);
  const auto plans = plans_of(in_segments(segments), all_reduce(count), size);
  auto memory = each_of(size, [&](int r) { return inout(r, count); });
  run(plans, memory);
  expect_outs(memory, [&](int, auto i) { return sum(size, i); });
  return plans;
}

// Three ranks, two segments of two elements in each half. Rank 2 is a leaf of the second tree and
// sends the second half to rank 0 as it is; the first half has to wait for rank 1. In step 1 both
// are under way to rank 0, and there turns decide who is first.
TEST(DoubleTreeAllReduce, SumsOverThreeRanksAsWorkedOutByHand) {
  const Plan plan = double_tree_all_reduce(all_reduce(8), 2, 3, 2);
  std::vector<std::vector<std::int64_t>> sent;  // step, to whom, elements: first and how many
  for (std::size_t step = 0; step < plan.steps(); ++step)
    for (const PlanAction& action : plan.step(step))
      if (action.kind == PlanAction::Kind::Send)
        sent.push_back(
            {static_cast<std::int64_t>(step), action.peer, action.from.begin, action.from.count});
  const std::vector<std::vector<std::int64_t>> by_hand{{0, 0, 4, 2}, {1, 0, 6, 2}, {1, 0, 0, 2},
                                                       {2, 0, 2, 2}, {4, 1, 0, 2}, {5, 1, 2, 2}};
  EXPECT_EQ(sent, by_hand) << "3 ranks, 8 elements in segments of 2: what rank 2 sends: step, to "
                              "whom, first element, how many";
  EXPECT_EQ(outputs(in_segments(2), all_reduce(4),
                    {{1, 2, 3, 4}, {10, 20, 30, 40}, {100, 200, 300, 400}}),
            (Rows(3, {111, 222, 333, 444})))
      << "3 ranks that begin with 1 2 3 4, 10 20 30 40 and 100 200 300 400: what each ends with";
}

TEST(DoubleTreeAllReduce, SumsOnEveryRank) {
  for_sizes_and_counts([](int p, std::int64_t count) {
    for (const int segments : {1, 2, 3, 8}) expect_sums(p, count, segments);
  });
  expect_sums(static_cast<int>(drawn("ranks of DoubleTreeAllReduce", 2, 200)),
              drawn("elements of DoubleTreeAllReduce", 500, 2000),
              static_cast<int>(drawn("segments of DoubleTreeAllReduce", 2, 20)));
}

// What is sent first must be heard first: where both trees lead from one rank to the same other, as
// of three ranks from 2 to 0, and where one leads up to it and the other down.
TEST(DoubleTreeAllReduce, MatchesMessagesForUpTo129Ranks) {
  for (int p = 1; p <= 129; ++p)
    for (const int segments : {1, 4, 9}) expect_sums(p, 24 * segments, segments);
}

TEST(DoubleTreeAllReduce, LeavesOutEmptySegments) {
  for (const int p : {2, 3, 4, 7, 8, 17})
    for (const std::int64_t count : {0, 1, 2, 3, 5}) {
      const auto plans = expect_sums(p, count, 64);
      for (const Plan& plan : plans)
        for (const PlanAction& action : plan.actions)
          ASSERT_GT(std::max(action.from.count, action.to.count), 0);
    }
}

TEST(DoubleTreeAllReduce, GivesAllRanksTheSameBits) {
  for (const int p : kSizes)
    for (const int segments : {1, 5}) {
      SCOPED_TRACE(testing::Message() << segments << " segments");
      expect_same_bits(in_segments(segments), p);
    }
}

// Each segment goes once up to every parent and once down to every child; what children send is
// added. So a rank with two children, and there is one from four ranks on, sends 2 n.
TEST(DoubleTreeAllReduce, SendsEachSegmentOnceThroughEachEdge) {
  for (const int p : {1, 2, 3, 4, 5, 6, 7, 8, 16, 33, 64})
    for (const int k : {1, 3, 6}) {
      SCOPED_TRACE(testing::Message() << p << " ranks, " << k << " segments");
      const std::int64_t count = 24 * k;
      const auto plans = plans_of(in_segments(k), all_reduce(count), p);
      const Tree trees[] = {tree_oracle::first_of(p), tree_oracle::second_of(p)};
      std::int64_t most = 0, all = 0;
      for (int r = 0; r < p; ++r) {
        std::int64_t parents = 0, children = 0;
        for (const Tree& tree : trees) {
          parents += at(tree, r).parent >= 0 ? 1 : 0;
          children += tree_oracle::children_of(at(tree, r));
        }
        const Traffic t = traffic_of(plans[static_cast<std::size_t>(r)]);
        EXPECT_EQ(t.messages, k * (parents + children)) << "messages that the rank sends";
        EXPECT_EQ(t.elements, count / 2 * (parents + children)) << "elements that the rank sends";
        EXPECT_EQ(t.added, count / 2 * children) << "elements that the rank adds";
        most = std::max(most, t.elements);
        all += t.elements;
      }
      EXPECT_EQ(most, (p == 1 ? 0 : std::min(p, 4)) * count / 2);
      EXPECT_EQ(all, 2 * (p - 1) * count);
    }
}

// Halves [0,5) and [5,11). Rank 2 is a leaf of the second tree and sends that half at once; in the
// first it has a child, so that it sends [0,5) up a round later, and down.
TEST(DoubleTreeAllReduce, CutsAsChunkOfDoes) {
  EXPECT_EQ(pieces_sent(double_tree_all_reduce(all_reduce(11), 2, 3, 2)),
            "[5,8) [8,11) [0,2) [2,5) [0,2) [2,5)")
      << "the pieces that the rank sends, in order, from their first element on";
}

// Two children's segments.
TEST(DoubleTreeAllReduce, DoesNotAskForFarMoreScratchThanItNeeds) {
  for_sizes_and_counts([](int p, std::int64_t n) {
    for (const int k : {1, 2, 5})
      expect_scratch(in_segments(k), all_reduce(n), p,
                     [&](int) { return n + 4 * (((n + 1) / 2 + k - 1) / k); });
  });
}

TEST(DoubleTreeAllReduce, SendsCountsThatNoIntHolds) {
  for (const int p : {3, 6})
    EXPECT_EQ(elements_sent(in_segments(5), all_reduce(kBeyondInt), p), 2 * (p - 1) * kBeyondInt)
        << "elements that all ranks send, more than an int holds";
}

TEST(DoubleTreeAllReduce, TakesStepsForItsRounds) {
  for (int p = 4; p <= 64; ++p)
    for (const int more : {-2, 0, 5}) {  // so many segments that somebody is busy all the time
      const int k = std::max(1, static_cast<int>(log2_ceil(p)) + more);
      std::size_t most = 0;
      for (const Plan& plan : plans_of(in_segments(k), all_reduce(8 * k), p))
        most = std::max(most, plan.steps());
      EXPECT_EQ(static_cast<std::int64_t>(most), 2 * (log2_ceil(p) + k - 1)) << p << ", " << k;
    }
}

// ---- seconds

constexpr std::int64_t kSegment = 256;  // elements

std::int64_t elements(int k) { return 2 * k * kSegment; }

double simulated(int p, int k, const Network& network = exact::kFlat) {
  return simulate(in_segments(k), call_of(CommOp::AllReduce, p, 4 * elements(k)), p, network)
      .seconds;
}

// 2 R a + (4 R - 2) m b + (2 R - 1) m g, R = L + k - 1, for four ranks and more.
double formula(int p, int k, const Network& network = exact::kFlat) {
  const double rounds = static_cast<double>(log2_ceil(p)) + k - 1;
  const bool alone = k == 1 && std::has_single_bit(unsigned(p - 1));  // below the root's message
  return 2 * rounds * network.link.latency_seconds +
         exact::bytes(kSegment) *
             ((4 * rounds - (alone ? 4 : 2)) * network.link.seconds_per_byte +
              (2 * rounds - (alone ? 2 : 1)) * network.reduce_seconds_per_byte);
}

TEST(DoubleTreeAllReduce, TakesTheTimeOfItsFormulaFor4To64Ranks) {
  for (int p = 4; p <= 64; ++p)
    for (const int k : {1, 2, 3, 4, 5, 8, 21})
      ASSERT_EQ(simulated(p, k), formula(p, k)) << p << " ranks, " << k << " segments";
  const int p = static_cast<int>(drawn("ranks of double tree seconds", 65, 600));
  const int k = static_cast<int>(drawn("segments of double tree seconds", 1, 12));
  EXPECT_EQ(simulated(p, k), formula(p, k)) << p << " ranks, " << k << " segments";
}

// Whatever is slowest, latency, links or additions: no other way through the trees becomes longer.
TEST(DoubleTreeAllReduce, TakesTheTimeOfItsFormulaOnAnyNetwork) {
  constexpr double kTimes[][3] = {{0x1p-2, 0x1p-20, 0x1p-30},  {0x1p-2, 0x1p-30, 0x1p-20},
                                  {0x1p-20, 0x1p-14, 0x1p-24}, {0x1p-20, 0x1p-24, 0x1p-14},
                                  {0, 0x1p-20, 0x1p-20},       {0x1p-10, 0, 0}};
  for (const auto& [a, b, g] : kTimes) {
    const Network network{.link = {a, b}, .reduce_seconds_per_byte = g};
    for (const int p : {4, 5, 6, 7, 9, 12, 20, 33, 36, 63})
      for (const int k : {1, 2, 3, 6})
        ASSERT_EQ(simulated(p, k, network), formula(p, k, network))
            << p << " ranks, " << k << " segments, a " << a << ", b " << b << ", g " << g;
  }
}

// What makes it two trees and not one: a segment more in each half takes a round more each way, in
// which two segments pass each link, none of them late.
TEST(DoubleTreeAllReduce, KeepsLinksAtWorkInEveryRound) {
  const double round = exact::kAlpha + 2 * exact::bytes(kSegment) * exact::kBeta;
  const double adding = 2 * exact::bytes(kSegment) * exact::kGamma;
  for (const int p : {4, 6, 7, 13, 16, 30, 64})
    EXPECT_EQ(simulated(p, 20) - simulated(p, 19), round + adding + round) << p << " ranks";
}

TEST(DoubleTreeAllReduce, SwapsHalvesBetweenTwoRanks) {
  for (const int k : {1, 2, 7})
    EXPECT_EQ(simulated(2, k),
              k * (2 * exact::message(kSegment) + exact::bytes(kSegment) * exact::kGamma));
  EXPECT_EQ(simulated(1, 3), 0);
}

TEST(DoubleTreeAllReduce, TakesTheSameTimeOnACommunicator) {
  constexpr int k = 3;
  for (const int p : {2, 3, 5, 8, 13}) {
    expect_sums(p, elements(k), k);
    if (HasFailure()) return;  // it would hang
    const Counted counted = expect_runs_as_planned(in_segments(k), all_reduce(elements(k)), p);
    EXPECT_EQ(counted.last_seconds(), p < 4 ? simulated(p, k) : formula(p, k)) << p << " ranks";
  }
}

TEST(DoubleTreeAllReduce, RefusesLessThanOneSegment) {
  for (const int k : {0, -1})
    EXPECT_THAT(message_of([&] { double_tree_all_reduce(all_reduce(8), 0, 4, k); }),
                testing::HasSubstr(std::to_string(k) + " segments"));
}

}  // namespace
}  // namespace aisc::plan_runs
