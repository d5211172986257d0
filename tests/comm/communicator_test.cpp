// The part of a communicator that all backends share: checks and statistics. A backend that does
// nothing but stand for any rank of any size shows the checks that one rank alone never meets.
#include "common/comm/communicator.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "common/comm/plan.h"
#include "common/core/tensor.h"
#include "tests/support/message_of.h"

namespace aisc {
namespace {

class IdleCommunicator final : public Communicator {
 public:
  IdleCommunicator(int rank, int size) : Communicator(rank, size, "tp") {}

  std::vector<Call> seen;
  std::vector<std::int64_t> seen_counts;  // of the last all_to_all

 private:
  Work do_exchange(const Call& call, std::span<const Transfer>) override {
    seen.push_back(call);
    return Work();
  }
  Work do_collective(Collective collective) override {
    seen.push_back(collective.call);
    seen_counts = collective.send_counts;
    return Work();
  }
  Work do_plan(Collective, Plan) override { return Work(); }
  std::unique_ptr<Communicator> do_split(int, int, std::string) override { return nullptr; }
};

class CommunicatorTest : public ::testing::Test {
 protected:
  Tensor f32(std::int64_t count) { return Tensor({count}, DType::F32, device_); }
  Tensor i32(std::int64_t count) { return Tensor({count}, DType::I32, device_); }

  CpuDevice device_;
  IdleCommunicator comm_{1, 4};  // rank 1 of 4
};

TEST_F(CommunicatorTest, NamesEveryOperation) {
  EXPECT_STREQ(name_of(CommOp::Exchange), "exchange");
  EXPECT_STREQ(name_of(CommOp::ReduceScatter), "reduce_scatter");
  EXPECT_STREQ(name_of(CommOp::AllToAllV), "all_to_all_v");
  EXPECT_STREQ(name_of(CommOp::Barrier), "barrier");
}

TEST_F(CommunicatorTest, RefusesARankThatDoesNotExist) {
  const Tensor x = f32(4), y = f32(4);
  EXPECT_EQ(message_of([&] { comm_.send(x, 4).wait(); }),
            "tp, rank 1: send: to 4 is not a rank of [0, size 4)");
  EXPECT_EQ(message_of([&] { comm_.recv(x, -1).wait(); }),
            "tp, rank 1: recv: from -1 is not a rank of [0, size 4)");
  EXPECT_EQ(message_of([&] { comm_.broadcast(x, 7).wait(); }),
            "tp, rank 1: broadcast: root 7 is not a rank of [0, size 4)");
  EXPECT_EQ(message_of([&] { comm_.reduce(x, y, 7).wait(); }),
            "tp, rank 1: reduce: root 7 is not a rank of [0, size 4)");
  EXPECT_EQ(message_of([&] { comm_.gather(x, y, 7).wait(); }),
            "tp, rank 1: gather: root 7 is not a rank of [0, size 4)");
  EXPECT_EQ(message_of([&] { comm_.scatter(x, y, 7).wait(); }),
            "tp, rank 1: scatter: root 7 is not a rank of [0, size 4)");
  const Transfer to[] = {{.in = x, .to = 9}}, from[] = {{.out = x, .from = 9}};
  EXPECT_EQ(message_of([&] { comm_.exchange(to).wait(); }),
            "tp, rank 1: exchange: to 9 is not a rank of [0, size 4)");
  EXPECT_EQ(message_of([&] { comm_.exchange(from).wait(); }),
            "tp, rank 1: exchange: from 9 is not a rank of [0, size 4)");
  const Transfer nothing[] = {{.to = 9, .from = 9}};
  EXPECT_EQ(message_of([&] { comm_.exchange(nothing).wait(); }), "");
}

TEST_F(CommunicatorTest, RefusesCountsThatDoNotFit) {
  EXPECT_EQ(message_of([&] { comm_.reduce_scatter(f32(10), f32(3)).wait(); }),
            "tp, rank 1: reduce_scatter: in.count 10 != size 4 * out.count 3");
  EXPECT_EQ(message_of([&] { comm_.all_gather(f32(3), f32(10)).wait(); }),
            "tp, rank 1: all_gather: out.count 10 != size 4 * in.count 3");
  EXPECT_EQ(message_of([&] { comm_.gather(f32(3), f32(10), 1).wait(); }),
            "tp, rank 1: gather: out.count 10 != size 4 * in.count 3");
  EXPECT_EQ(message_of([&] { comm_.scatter(f32(10), f32(3), 1).wait(); }),
            "tp, rank 1: scatter: in.count 10 != size 4 * out.count 3");
  EXPECT_EQ(message_of([&] { comm_.reduce(f32(3), f32(4), 1).wait(); }),
            "tp, rank 1: reduce: in.count 3 != out.count 4");
  EXPECT_EQ(message_of([&] { comm_.all_to_all(f32(4), f32(8)).wait(); }),
            "tp, rank 1: all_to_all: in.count 4 != out.count 8");
  EXPECT_EQ(message_of([&] { comm_.all_to_all(f32(6), f32(6)).wait(); }),
            "tp, rank 1: all_to_all: count 6 is not divisible by size 4");
}

TEST_F(CommunicatorTest, RefusesTypesThatDiffer) {
  EXPECT_EQ(message_of([&] { comm_.reduce_scatter(f32(12), i32(3)).wait(); }),
            "tp, rank 1: reduce_scatter: in is F32, out is I32");
  EXPECT_EQ(message_of([&] { comm_.all_gather(f32(3), i32(12)).wait(); }),
            "tp, rank 1: all_gather: out is I32, in is F32");
  EXPECT_EQ(message_of([&] { comm_.gather(f32(3), i32(12), 1).wait(); }),
            "tp, rank 1: gather: out is I32, in is F32");
  EXPECT_EQ(message_of([&] { comm_.scatter(f32(12), i32(3), 1).wait(); }),
            "tp, rank 1: scatter: in is F32, out is I32");
  EXPECT_EQ(message_of([&] { comm_.reduce(f32(3), i32(3), 1).wait(); }),
            "tp, rank 1: reduce: in is F32, out is I32");
  EXPECT_EQ(message_of([&] { comm_.all_to_all(f32(4), i32(4)).wait(); }),
            "tp, rank 1: all_to_all: in is F32, out is I32");
  const std::int64_t counts[] = {1, 1, 1, 1};
  EXPECT_EQ(message_of([&] { comm_.all_to_all_v(f32(4), counts, i32(4), counts).wait(); }),
            "tp, rank 1: all_to_all_v: in is F32, out is I32");
  EXPECT_EQ(message_of([&] { comm_.all_gather(i32(0), Buffer()).wait(); }), "");
}

TEST_F(CommunicatorTest, RefusesCountsOfAllToAllVThatDoNotAddUp) {
  const Tensor in = f32(6), out = f32(4);
  const std::vector<std::int64_t> six{1, 2, 3, 0}, four{1, 1, 1, 1}, short_one{3, 3};
  const std::vector<std::int64_t> negative{4, -1, 1, 0};
  const auto call = [&](const auto& send, const auto& recv) {
    return message_of([&] { comm_.all_to_all_v(in, send, out, recv).wait(); });
  };
  EXPECT_EQ(call(six, four), "");
  EXPECT_EQ(call(short_one, four), "tp, rank 1: all_to_all_v: send_counts has 2 values, size is 4");
  EXPECT_EQ(call(six, short_one), "tp, rank 1: all_to_all_v: recv_counts has 2 values, size is 4");
  EXPECT_EQ(call(six, negative), "tp, rank 1: all_to_all_v: recv_counts[1] is -1");
  EXPECT_EQ(call(four, four), "tp, rank 1: all_to_all_v: send_counts add up to 4 != in.count 6");
  EXPECT_EQ(call(six, six), "tp, rank 1: all_to_all_v: recv_counts add up to 6 != out.count 4");
}

TEST_F(CommunicatorTest, AllowsThisRanksChunkInPlaceAndNoOtherOverlap) {
  const Tensor whole = f32(12);
  const View mine = whole.rows(3, 6), other = whole.rows(6, 9);
  EXPECT_EQ(message_of([&] {
              comm_.all_gather(mine, whole).wait();
              comm_.gather(mine, whole, 1).wait();
              comm_.reduce_scatter(whole, mine).wait();
              comm_.scatter(whole, mine, 1).wait();
              comm_.reduce(whole, whole, 1).wait();
            }),
            "");
  EXPECT_EQ(message_of([&] { comm_.all_gather(other, whole).wait(); }),
            "tp, rank 1: all_gather: in overlaps out and is not this rank's chunk of it");
  EXPECT_EQ(message_of([&] { comm_.gather(other, whole, 1).wait(); }),
            "tp, rank 1: gather: in overlaps out and is not this rank's chunk of it");
  EXPECT_EQ(message_of([&] { comm_.reduce_scatter(whole, other).wait(); }),
            "tp, rank 1: reduce_scatter: out overlaps in and is not this rank's chunk of it");
  EXPECT_EQ(message_of([&] { comm_.scatter(whole, other, 1).wait(); }),
            "tp, rank 1: scatter: out overlaps in and is not this rank's chunk of it");
  EXPECT_EQ(message_of([&] { comm_.reduce(whole.rows(0, 4), whole.rows(3, 7), 1).wait(); }),
            "tp, rank 1: reduce: in and out overlap");
  EXPECT_EQ(message_of([&] { comm_.all_to_all(whole, whole).wait(); }),
            "tp, rank 1: all_to_all: in and out overlap");
  const std::int64_t counts[] = {3, 3, 3, 3};
  EXPECT_EQ(message_of([&] { comm_.all_to_all_v(whole, counts, whole, counts).wait(); }),
            "tp, rank 1: all_to_all_v: in and out overlap");
}

TEST_F(CommunicatorTest, IgnoresBuffersThatOnlyTheRootUses) {
  const Tensor x = f32(3);
  EXPECT_EQ(message_of([&] {
              comm_.reduce(x, Buffer(), 0).wait();
              comm_.gather(x, Buffer(), 0).wait();
              comm_.scatter(ConstBuffer(), x, 0).wait();
              comm_.scatter(f32(5), x, 0).wait();
            }),
            "");
}

TEST_F(CommunicatorTest, CountsStepsAndMessagesOfPlansOnly) {
  const Tensor x = f32(3);
  PlanTable plans;
  plans[CommOp::AllReduce] = [](const Collective& c, int rank, int size) {
    Plan plan{.name = "two to the right, one signal"};
    const int right = (rank + 1) % size;
    plan.send(right, {Piece::Where::Out, 0, 2});
    plan.end_step();
    plan.send(right, {Piece::Where::Out, 2, c.call.count - 2});
    plan.signal(0);
    plan.end_step();
    return plan;
  };
  comm_.all_reduce(x).wait();
  EXPECT_EQ(comm_.stats().sent().messages, 0);
  comm_.use_plans(plans);
  comm_.all_reduce(x).wait();
  comm_.broadcast(x, 0).wait();
  const CommStats stats = comm_.stats();
  EXPECT_EQ(stats.steps, 2);
  EXPECT_EQ(stats.sent().messages, 3);
  EXPECT_EQ(stats.sent().wire_bytes, 12);
  ASSERT_EQ(stats.peers.size(), 2U);
  EXPECT_EQ(stats.peers.at(2).messages, 2);
  EXPECT_EQ(stats.peers.at(2).wire_bytes, 12);
  EXPECT_EQ(stats.peers.at(0).messages, 1);
  EXPECT_EQ(stats.peers.at(0).wire_bytes, 0);
  EXPECT_EQ(stats[CommOp::AllReduce].calls, 2);
  EXPECT_EQ(stats[CommOp::AllReduce].payload_bytes, 24);
}

TEST_F(CommunicatorTest, RefusesPlansThatLeaveTheRanksOrTheBuffers) {
  const Tensor x = f32(3);
  const auto message = [&](const auto& add) {
    PlanTable plans;
    plans[CommOp::AllReduce] = [&](const Collective&, int, int) {
      Plan plan{.name = "odd"};
      add(plan);
      return plan;
    };
    comm_.use_plans(plans);
    return message_of([&] { comm_.all_reduce(x).wait(); });
  };
  const Piece whole{Piece::Where::Out, 0, 3};
  EXPECT_EQ(message([&](Plan& plan) { plan.send(4, whole), plan.end_step(); }),
            "tp, rank 1: all_reduce: plan \"odd\": peer 4 is not a rank of [0, size 4)");
  EXPECT_EQ(message([&](Plan& plan) {
              plan.recv(0, {Piece::Where::Scratch, 0, 1}), plan.end_step();
            }),
            "tp, rank 1: all_reduce: plan \"odd\": elements [0, 1) of a buffer of 0");
  EXPECT_EQ(message([&](Plan& plan) {
              plan.copy({Piece::Where::Out, 0, 2}, whole), plan.end_step();
            }),
            "tp, rank 1: all_reduce: plan \"odd\": 3 elements are copied or added to 2");
  EXPECT_EQ(message([&](Plan& plan) { plan.send(0, whole); }),
            "tp, rank 1: all_reduce: plan \"odd\": its last step has no end");
}

TEST_F(CommunicatorTest, HandsEachCallOnAsErrorsShowItAndCountsItsPayload) {
  const Tensor x = f32(3), whole = f32(12), other = f32(12);  // 12, 48 and 48 bytes
  const std::int64_t counts[] = {3, 3, 3, 3};
  const Transfer both[] = {{.in = x, .to = 0, .out = whole, .from = 2}, {.in = x, .to = 2}};
  const Transfer receive[] = {{.out = whole, .from = 2}};
  comm_.all_reduce(x).wait();
  comm_.all_reduce(whole).wait();
  comm_.reduce(x, Buffer(), 2, ReduceOp::Max).wait();
  comm_.reduce_scatter(whole, x, ReduceOp::Min).wait();
  comm_.all_gather(x, whole).wait();
  comm_.gather(x, Buffer(), 0).wait();
  comm_.scatter(ConstBuffer(), x, 0).wait();
  comm_.scatter(whole, x, 1).wait();
  comm_.broadcast(x, 3).wait();
  comm_.all_to_all(whole, other).wait();
  EXPECT_EQ(comm_.seen_counts, (std::vector<std::int64_t>{3, 3, 3, 3}));
  comm_.all_to_all_v(whole, counts, other, counts).wait();
  comm_.barrier();
  comm_.send(x, 2).wait();
  comm_.recv(whole, 3).wait();
  comm_.exchange(both).wait();
  comm_.exchange(receive).wait();

  struct Expected {
    CommOp op;
    std::vector<std::string> calls;
    std::int64_t bytes;
  };
  std::size_t i = 0;
  for (const auto& [op, calls, bytes] :
       {Expected{CommOp::AllReduce, {"all_reduce(3 x F32)", "all_reduce(12 x F32)"}, 12 + 48},
        Expected{CommOp::Reduce, {"reduce(3 x F32, max, root 2)"}, 12},
        Expected{CommOp::ReduceScatter, {"reduce_scatter(3 x F32, min)"}, 48},
        Expected{CommOp::AllGather, {"all_gather(3 x F32)"}, 12},
        Expected{CommOp::Gather, {"gather(3 x F32, root 0)"}, 12},
        Expected{CommOp::Scatter, {"scatter(3 x F32, root 0)", "scatter(3 x F32, root 1)"}, 60},
        Expected{CommOp::Broadcast, {"broadcast(3 x F32, root 3)"}, 12},
        Expected{CommOp::AllToAll, {"all_to_all(3 x F32)"}, 48},
        Expected{CommOp::AllToAllV, {"all_to_all_v(F32)"}, 48},
        Expected{CommOp::Barrier, {"barrier"}, 0},
        Expected{CommOp::Send, {"send(3 x F32) to 2"}, 12},
        Expected{CommOp::Recv, {"recv(12 x F32) from 3"}, 48},
        Expected{CommOp::Exchange, {"exchange", "exchange"}, 24 + 48}}) {
    for (const std::string& call : calls) EXPECT_EQ(to_string(comm_.seen.at(i++)), call);
    EXPECT_EQ(comm_.stats()[op].calls, std::ssize(calls)) << name_of(op);
    EXPECT_EQ(comm_.stats()[op].payload_bytes, bytes) << name_of(op);
  }
  EXPECT_EQ(i, comm_.seen.size());
}

TEST_F(CommunicatorTest, DoesNotCountACallThatWasRefused) {
  EXPECT_THROW(comm_.all_gather(f32(3), f32(10)).wait(), Error);
  EXPECT_EQ(comm_.stats()[CommOp::AllGather].calls, 0);
}

TEST(Buffer, HoldsAShareOfATensorAndNoneOfAView) {
  CpuDevice device;
  const Tensor x({2, 3}, DType::BF16, device);
  const Buffer from_tensor(x);
  EXPECT_EQ(x.owners(), 2);
  const ConstBuffer from_view(x.view());
  EXPECT_EQ(x.owners(), 2);
  const Buffer copy = from_tensor.share();
  EXPECT_EQ(x.owners(), 3);
  EXPECT_EQ(copy.count(), 6);
  EXPECT_EQ(copy.bytes(), 12U);
  EXPECT_EQ(copy.dtype(), DType::BF16);
  EXPECT_EQ(copy.view().raw(), x.view().raw());
  const ConstBuffer constant = ConstBuffer(x).share();
  EXPECT_EQ(x.owners(), 4);
  EXPECT_EQ(ConstBuffer().share().count(), 0);
}

}  // namespace
}  // namespace aisc
