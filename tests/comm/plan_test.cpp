// How plans are written down and printed, the table of defaults, and the oracle that
// default_plans_test.cpp runs them with.
#include "common/comm/plan.h"

#include <gtest/gtest.h>

#include "tests/comm/plan_runs.h"

namespace aisc {
namespace {

using plan_runs::call;
using plan_runs::Where;

TEST(Plan, ChunksAreEvenAndCoverTheBuffer) {
  for (const int p : {1, 2, 3, 7, 16})
    for (const std::int64_t count : {0, 1, p - 1, p, p + 1, 1000}) {
      SCOPED_TRACE(testing::Message() << p << " chunks of " << count);
      std::int64_t end = 0;
      for (int i = 0; i < p; ++i) {
        const Piece chunk = chunk_of(Where::In, count, i, p);
        EXPECT_EQ(chunk.where, Where::In);
        EXPECT_EQ(chunk.begin, end);
        EXPECT_GE(chunk.count, count / p);
        EXPECT_LE(chunk.count, (count + p - 1) / p);
        end = chunk.begin + chunk.count;
      }
      EXPECT_EQ(end, count);
    }
}

TEST(Plan, LeavesOutEmptyPiecesAndEmptyStepsButNotSignals) {
  Plan plan;
  plan.end_step();
  plan.send(1, {Where::In, 3, 0});
  plan.recv(1, {});
  plan.copy({}, {});
  plan.reduce({}, {});
  plan.end_step();
  EXPECT_EQ(plan.steps(), 0u);
  plan.signal(2);
  plan.end_step();
  plan.end_step();
  plan.await(3);
  plan.copy({Where::Out, 0, 1}, {Where::In, 0, 1});
  plan.end_step();
  ASSERT_EQ(plan.steps(), 2u);
  EXPECT_EQ(plan.step(0).size(), 1u);
  EXPECT_EQ(plan.step(1).size(), 2u);
  EXPECT_EQ(plan.step(1)[0].peer, 3);
}

TEST(Plan, PrintsItselfAsATable) {
  EXPECT_EQ(ring_all_reduce(call(CommOp::AllReduce, 8), 1, 4).to_string(),
            "ring all_reduce: 6 steps, scratch 2\n"
            "step  action  peer  piece\n"
            "   0  send       2  out[2, 4)\n"
            "      recv       0  scratch[0, 2)\n"
            "      reduce        out[0, 2) <- scratch[0, 2)\n"
            "   1  send       2  out[0, 2)\n"
            "      recv       0  scratch[0, 2)\n"
            "      reduce        out[6, 8) <- scratch[0, 2)\n"
            "   2  send       2  out[6, 8)\n"
            "      recv       0  scratch[0, 2)\n"
            "      reduce        out[4, 6) <- scratch[0, 2)\n"
            "   3  send       2  out[4, 6)\n"
            "      recv       0  out[2, 4)\n"
            "   4  send       2  out[2, 4)\n"
            "      recv       0  out[0, 2)\n"
            "   5  send       2  out[0, 2)\n"
            "      recv       0  out[6, 8)\n");
  EXPECT_EQ(dissemination_barrier(call(CommOp::Barrier, 0), 0, 4).to_string(),
            "dissemination barrier: 2 steps, scratch 0\n"
            "step  action  peer  piece\n"
            "   0  signal     1\n"
            "      await      3\n"
            "   1  signal     2\n"
            "      await      2\n");
  EXPECT_EQ(ring_all_gather(call(CommOp::AllGather, 3), 0, 1).to_string(),
            "ring all_gather: 1 steps, scratch 0\n"
            "step  action  peer  piece\n"
            "   0  copy          out[0, 3) <- in[0, 3)\n");
  EXPECT_EQ(tree_broadcast(call(CommOp::Broadcast, 3, 0), 0, 1).to_string(),
            "tree broadcast: 0 steps, scratch 0\n");
}

TEST(DefaultPlans, HaveOneForEachCollective) {
  const PlanTable table = default_plans();
  for (int op = 0; op < kCommOpCount; ++op) {
    const bool is_collective =
        op > static_cast<int>(CommOp::Recv) && op != static_cast<int>(CommOp::Split);
    EXPECT_EQ(static_cast<bool>(table.makers[static_cast<std::size_t>(op)]), is_collective) << op;
  }
  const auto name = [&](CommOp op) { return table[op](call(op, 8, 0), 0, 1).name; };
  EXPECT_EQ(name(CommOp::AllReduce), "ring all_reduce");
  EXPECT_EQ(name(CommOp::ReduceScatter), "ring reduce_scatter");
  EXPECT_EQ(name(CommOp::Reduce), "tree reduce");
  EXPECT_EQ(name(CommOp::Gather), "direct gather");
  EXPECT_EQ(name(CommOp::Scatter), "direct scatter");
}

// The oracle itself: two ranks with 4 elements of input and of output each.
class PlanOracleTest : public ::testing::Test {
 protected:
  std::string run() {
    for (Plan& plan : plans_) plan.end_step();
    const RankMemory<int> rank{std::vector<int>(8), {0, 4}, {4, 4}};
    std::vector<RankMemory<int>> memory{rank, rank};
    return PlanOracle<int>(plans_, memory, 0).run();
  }
  std::vector<Plan> plans_{2};
  const Piece in_{Where::In, 0, 4}, out_{Where::Out, 0, 4};
};

TEST_F(PlanOracleTest, FindsMessagesThatNobodyReceivesOrSends) {
  plans_[0].send(1, in_);
  EXPECT_EQ(run(), "rank 0, step 0: waits for ever: it sends 4 elements to rank 1, which is done");
  plans_ = std::vector<Plan>(2);
  plans_[1].recv(0, out_);
  EXPECT_EQ(run(),
            "rank 1, step 0: waits for ever: it receives 4 elements from rank 0, which is done");
  plans_ = std::vector<Plan>(2);
  plans_[1].send(2, in_);
  EXPECT_EQ(run(),
            "rank 1, step 0: waits for ever: it sends 4 elements to rank 2, which is no rank");
}

TEST_F(PlanOracleTest, FindsRanksThatWaitForEachOther) {
  for (const int r : {0, 1}) {
    plans_[static_cast<std::size_t>(r)].send(1 - r, in_);
    plans_[static_cast<std::size_t>(r)].end_step();
    plans_[static_cast<std::size_t>(r)].recv(1 - r, out_);
  }
  EXPECT_EQ(run(),
            "rank 0, step 0: waits for ever: it sends 4 elements to rank 1, which in step 0 sends "
            "to rank 0");
}

TEST_F(PlanOracleTest, FindsActionsThatNoStepEnds) {
  plans_[0].send(1, in_);
  plans_[1].recv(0, out_);
  plans_[1].end_step();
  const RankMemory<int> rank{std::vector<int>(8), {0, 4}, {4, 4}};
  std::vector<RankMemory<int>> memory{rank, rank};
  EXPECT_EQ(PlanOracle<int>(plans_, memory, 0).run(),
            "rank 0: 1 action after the last end_step() is never run");
}

TEST_F(PlanOracleTest, FindsCountsThatDiffer) {
  plans_[0].send(1, in_);
  plans_[1].recv(0, {Where::Out, 0, 3});
  EXPECT_EQ(run(), "rank 1, step 0: expects 3 elements, rank 0 sends 4");
  plans_ = std::vector<Plan>(2);
  plans_[0].copy(out_, {Where::In, 0, 3});
  EXPECT_EQ(run(), "rank 0, step 0: copies or adds unequal counts: copy out[0, 4) <- in[0, 3)");
}

TEST_F(PlanOracleTest, FindsWritesWhereNobodyMayWrite) {
  plans_[0].reduce(in_, out_);
  EXPECT_EQ(run(), "rank 0, step 0: writes to in: reduce in[0, 4)");
  plans_ = std::vector<Plan>(2);
  plans_[0].copy({Where::Scratch, 0, 4}, in_);
  EXPECT_EQ(run(), "rank 0, step 0: a piece lies outside: copy scratch[0, 4), scratch has 0");
  plans_ = std::vector<Plan>(2);
  plans_[0].recv(1, out_);
  plans_[0].send(1, {Where::Out, 3, 1});
  EXPECT_EQ(run(),
            "rank 0, step 0: receives into memory of another message: recv out[0, 4) and send "
            "out[3, 4)");
}

}  // namespace
}  // namespace aisc
