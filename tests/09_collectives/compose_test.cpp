// Plans made of plans.
#include "09_collectives/compose.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>
#include <utility>

#include "common/comm/fold.h"
#include "tests/comm/plan_runs.h"

namespace aisc::plan_runs {
namespace {

Piece piece(Where where, std::int64_t begin, std::int64_t count) {
  return {.where = where, .begin = begin, .count = count};
}

TEST(Compose, MovesPiecesOfOutAlone) {
  Plan plan{.name = "one", .scratch_count = 5};
  plan.send(1, piece(Where::Out, 2, 3));
  plan.recv(1, piece(Where::Scratch, 0, 5));
  plan.copy(piece(Where::Out, 0, 1), piece(Where::In, 7, 1));
  plan.end_step();
  const Plan there = moved(plan, 100);
  EXPECT_EQ(there.actions[0].from.begin, 102);
  EXPECT_EQ(there.actions[1].to.begin, 0);
  EXPECT_EQ(there.actions[2].to.begin, 100);
  EXPECT_EQ(there.actions[2].from.begin, 7);
  EXPECT_EQ(there.scratch_count, 5);
}

// common's ring over one half of the buffer, and the other way round over the other. Of two ranks
// both messages go to the same peer, in the same order on both sides.
TEST(Compose, RunsPlansSideBySide) {
  for (const int p : {1, 2, 3, 5})
    for (const std::int64_t n : {0, 1, 7, 100}) {
      const auto plans = each_of(p, [&](int r) {
        const Piece second = chunk_of(Where::Out, n, 1, 2);
        Plan backwards = ring_all_reduce(call(CommOp::AllReduce, second.count), p - 1 - r, p);
        for (PlanAction& action : backwards.actions)
          if (action.peer >= 0) action.peer = p - 1 - action.peer;
        const Plan both[] = {ring_all_reduce(call(CommOp::AllReduce, n - second.count), r, p),
                             moved(std::move(backwards), second.begin)};
        return side_by_side("both", both);
      });
      auto memory = each_of(p, [&](int r) { return inout(r, n); });
      run(plans, memory);
      expect_outs(memory, [&](int, std::int64_t i) { return sum(p, i); });
      for (const Plan& plan : plans) EXPECT_EQ(plan.name, "both");
    }
}

TEST(Compose, LeavesOutWhoHasNoFurtherStep) {
  Plan one{.name = "one"}, two{.name = "two"};
  for (Plan* plan : {&one, &two}) plan->signal(1);
  for (Plan* plan : {&one, &two}) plan->end_step();
  two.await(1);
  two.end_step();
  const Plan plans[] = {one, two};
  const Plan both = side_by_side("both", plans);
  ASSERT_EQ(both.steps(), 2u);
  EXPECT_EQ(both.step(0).size(), 2u);
  EXPECT_EQ(both.step(1).size(), 1u);
}

TEST(Compose, AppendsWithTheSameScratch) {
  const auto plans = each_of(4, [](int r) {
    Plan plan = tree_reduce(call(CommOp::Reduce, 10, 0), r, 4);
    const std::int64_t scratch = plan.scratch_count;
    append(plan, tree_broadcast(call(CommOp::Broadcast, 10, 0), r, 4));
    EXPECT_EQ(plan.scratch_count, scratch);
    return plan;
  });
  auto memory = each_of(4, [&](int r) { return apart(r, 10, 10); });
  PlanOracle<std::int64_t> oracle(plans, memory, kPoison);
  EXPECT_EQ(oracle.run(), "");
  expect_outs(memory, [&](int, std::int64_t i) { return sum(4, i); });
}

TEST(Fold, LeavesAPowerOfTwoThatGoesOn) {
  for (int p = 1; p <= 70; ++p) {
    std::set<int> numbers;
    for (int r = 0; r < p; ++r) {
      const Fold fold(r, p);
      EXPECT_TRUE(fold.q <= p && p < 2 * fold.q);
      EXPECT_EQ(fold.pairs, p - fold.q);
      EXPECT_EQ(fold.paired, r < 2 * (p - fold.q));
      if (fold.paired) {
        EXPECT_EQ(Fold(fold.partner, p).partner, r);
        EXPECT_EQ(Fold(fold.partner, p).v, fold.v);
        EXPECT_NE(Fold(fold.partner, p).goes_on, fold.goes_on);
      } else {
        EXPECT_EQ(fold.partner, -1);
      }
      if (!fold.goes_on) continue;
      EXPECT_TRUE(numbers.insert(fold.v).second);
      EXPECT_EQ(fold.rank_of(fold.v), r);
      EXPECT_TRUE(fold.v >= 0 && fold.v < fold.q);
    }
    EXPECT_EQ(numbers.size(), std::bit_floor(static_cast<unsigned>(p)));
  }
}

}  // namespace
}  // namespace aisc::plan_runs
