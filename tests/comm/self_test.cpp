// The communicator of one rank: every operation, and what waiting for oneself leads to.
#include <gtest/gtest.h>

#include <cstring>
#include <tuple>
#include <utility>

#include "common/comm/communicator.h"
#include "common/core/tensor.h"
#include "tests/support/message_of.h"

namespace aisc {
namespace {

// One rank, and tensors filled with bytes that differ from element to element.
class SelfTest : public ::testing::Test {
 protected:
  Tensor filled(std::int64_t count, DType dtype, int seed) {
    Tensor tensor({count}, dtype, device_, Purpose::Communication);
    auto* bytes = static_cast<unsigned char*>(tensor.view().raw());
    for (std::size_t i = 0; i < tensor.bytes(); ++i)
      bytes[i] = static_cast<unsigned char>(i * 7 + static_cast<std::size_t>(seed));
    return tensor;
  }
  static bool same(const Tensor& a, const Tensor& b) {
    return a.bytes() == b.bytes() && std::memcmp(a.view().raw(), b.view().raw(), a.bytes()) == 0;
  }

  CpuDevice device_;
  std::unique_ptr<Communicator> comm_ = make_self_communicator("tp");
};

class SelfCollectives : public SelfTest,
                        public ::testing::WithParamInterface<std::tuple<int, DType>> {
 protected:
  const std::int64_t count_ = std::get<0>(GetParam());
  const DType dtype_ = std::get<1>(GetParam());
  const Tensor in_ = filled(count_, dtype_, 1);
  const Tensor original_ = in_.clone();
  const Tensor out_ = filled(count_, dtype_, 2);

  // The output is the input, and the input is what it was.
  void expect_copied() {
    EXPECT_TRUE(same(out_, original_));
    EXPECT_TRUE(same(in_, original_));
  }
};

TEST_P(SelfCollectives, AllReduceLeavesTheOnlySummand) {
  for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max})
    comm_->all_reduce(in_, op).wait();
  EXPECT_TRUE(same(in_, original_));
}

TEST_P(SelfCollectives, BroadcastLeavesTheRoot) {
  comm_->broadcast(in_, 0).wait();
  EXPECT_TRUE(same(in_, original_));
}

TEST_P(SelfCollectives, ReduceCopies) {
  comm_->reduce(in_, out_, 0, ReduceOp::Max).wait();
  expect_copied();
}

TEST_P(SelfCollectives, ReduceScatterCopies) {
  comm_->reduce_scatter(in_, out_).wait();
  expect_copied();
}

TEST_P(SelfCollectives, AllGatherCopies) {
  comm_->all_gather(in_, out_).wait();
  expect_copied();
}

TEST_P(SelfCollectives, GatherCopies) {
  comm_->gather(in_, out_, 0).wait();
  expect_copied();
}

TEST_P(SelfCollectives, ScatterCopies) {
  comm_->scatter(in_, out_, 0).wait();
  expect_copied();
}

TEST_P(SelfCollectives, AllToAllCopies) {
  comm_->all_to_all(in_, out_).wait();
  expect_copied();
}

TEST_P(SelfCollectives, AllToAllVCopies) {
  const std::int64_t counts[] = {count_};
  comm_->all_to_all_v(in_, counts, out_, counts).wait();
  expect_copied();
}

TEST_P(SelfCollectives, ExchangeWithItselfCopies) {
  const Transfer transfers[] = {{.in = in_, .to = 0, .out = out_, .from = 0}};
  comm_->exchange(transfers).wait();
  expect_copied();
}

TEST_P(SelfCollectives, SendMeetsALaterRecv) {
  Work send = comm_->send(in_, 0);
  comm_->recv(out_, 0).wait();
  send.wait();
  expect_copied();
}

TEST_P(SelfCollectives, RecvMeetsALaterSend) {
  Work recv = comm_->recv(out_, 0);
  comm_->send(in_, 0).wait();
  recv.wait();
  expect_copied();
}

TEST_P(SelfCollectives, WorkInPlace) {
  comm_->reduce(in_, in_, 0).wait();
  comm_->reduce_scatter(in_, in_).wait();
  comm_->all_gather(in_, in_).wait();
  comm_->gather(in_, in_, 0).wait();
  comm_->scatter(in_, in_, 0).wait();
  EXPECT_TRUE(same(in_, original_));
}

INSTANTIATE_TEST_SUITE_P(CountsAndTypes, SelfCollectives,
                         ::testing::Values(std::tuple(0, DType::F32), std::tuple(1, DType::F64),
                                           std::tuple(1, DType::U8), std::tuple(1000, DType::F32),
                                           std::tuple(1000, DType::BF16),
                                           std::tuple(1000, DType::I64),
                                           std::tuple(1000, DType::I32)),
                         [](const auto& test) {
                           return std::to_string(std::get<0>(test.param)) + "x" +
                                  name_of(std::get<1>(test.param));
                         });

TEST_F(SelfTest, MessagesMatchFirstInFirstOut) {
  const Tensor a = filled(3, DType::F32, 1), b = filled(3, DType::F32, 2);
  const Tensor first = filled(3, DType::F32, 3), second = filled(3, DType::F32, 4);
  Work send_a = comm_->send(a, 0), send_b = comm_->send(b, 0);
  comm_->recv(first, 0).wait();
  comm_->recv(second, 0).wait();
  EXPECT_TRUE(same(first, a));
  EXPECT_TRUE(same(second, b));
}

TEST_F(SelfTest, MessagesOfAnExchangeMatchWithinItAndAcrossCalls) {
  const Tensor a = filled(3, DType::F32, 1), b = filled(3, DType::F32, 2);
  const Tensor first = filled(3, DType::F32, 3), second = filled(3, DType::F32, 4);
  Work early = comm_->recv(first, 0);
  const Transfer transfers[] = {{.in = a}, {.out = second}, {.in = b}};
  comm_->exchange(transfers).wait();
  early.wait();
  EXPECT_TRUE(same(first, a));
  EXPECT_TRUE(same(second, b));
}

TEST_F(SelfTest, WorkIsDoneWhenItsOtherSideHasCome) {
  const Tensor a = filled(3, DType::F32, 1), b = filled(3, DType::F32, 2);
  Work recv = comm_->recv(b, 0);
  EXPECT_FALSE(recv.done());
  Work send = comm_->send(a, 0);
  EXPECT_TRUE(send.done());
  EXPECT_TRUE(recv.done());
}

TEST_F(SelfTest, WorkHoldsAShareOfItsTensorsUntilItIsOver) {
  const Tensor a = filled(3, DType::F32, 1), b = filled(3, DType::F32, 2);
  {
    Work send = comm_->send(a, 0);
    EXPECT_EQ(a.owners(), 2);
    Work recv = comm_->recv(b, 0);
    recv.wait();
    EXPECT_EQ(b.owners(), 1);
    send.wait();
    EXPECT_EQ(a.owners(), 1);
  }
  Tensor sent = a.clone();
  Work send = comm_->send(std::exchange(sent, Tensor()), 0);  // the caller gives its share away
  comm_->recv(b, 0).wait();
  EXPECT_TRUE(same(b, a));
}

TEST_F(SelfTest, WaitForAMessageThatWasNeverSentIsAnErrorNotAHang) {
  const Tensor a = filled(3, DType::F32, 1);
  Work recv = comm_->recv(a, 0);
  EXPECT_EQ(message_of([&] { recv.wait(); }),
            "tp: ranks wait for each other in a cycle: rank 0 in recv(3 x F32) from 0 on tp");
  EXPECT_EQ(a.owners(), 1);
}

TEST_F(SelfTest, WaitForAMessageThatIsNeverReceivedIsAnErrorNotAHang) {
  const Transfer transfers[] = {{.in = filled(3, DType::F32, 1)}};
  EXPECT_EQ(message_of([&] { comm_->exchange(transfers).wait(); }),
            "tp: ranks wait for each other in a cycle: rank 0 in exchange on tp");
}

TEST_F(SelfTest, MessageAndReceiveThatDifferAreAnErrorOfBoth) {
  const Tensor a = filled(3, DType::F32, 1), b = filled(4, DType::I32, 2);
  Work send = comm_->send(a, 0), recv = comm_->recv(b, 0);
  const std::string expected =
      "tp: rank 0 called recv(4 x I32) from 0 where rank 0 called send(3 x F32) to 0";
  EXPECT_EQ(message_of([&] { recv.wait(); }), expected);
  EXPECT_EQ(message_of([&] { send.wait(); }), expected);
}

TEST_F(SelfTest, ErrorOfADroppedWorkIsThrownByEveryLaterCall) {
  const Tensor a = filled(3, DType::F32, 1);
  { Work dropped = comm_->recv(a, 0); }
  EXPECT_EQ(a.owners(), 1);
  const std::string expected =
      "tp: ranks wait for each other in a cycle: rank 0 in recv(3 x F32) from 0 on tp";
  EXPECT_EQ(message_of([&] { comm_->barrier(); }), expected);
  EXPECT_EQ(message_of([&] { comm_->all_reduce(a).wait(); }), expected);
  EXPECT_EQ(message_of([&] { comm_->split(0, 0, "dp"); }), expected);
}

TEST_F(SelfTest, WorkMayOutliveItsCommunicator) {
  const Tensor a = filled(3, DType::F32, 1);
  Work recv = comm_->recv(a, 0);
  comm_.reset();
  EXPECT_THROW(recv.wait(), Error);
}

TEST_F(SelfTest, AllToAllVNeedsTheSameCountsOnBothSides) {
  const Tensor a = filled(3, DType::F32, 1), b = filled(4, DType::F32, 2);
  const std::int64_t three[] = {3}, four[] = {4};
  EXPECT_EQ(message_of([&] { comm_->all_to_all_v(a, three, b, four).wait(); }),
            "tp: rank 0 called all_to_all_v with 3 for rank 0 where rank 0 called all_to_all_v "
            "expecting 4 from it");
}

TEST_F(SelfTest, SplitNamesTheNewCommunicator) {
  const auto dp = comm_->split(2, 5, "dp");
  EXPECT_EQ(dp->name(), "dp");
  EXPECT_EQ(dp->rank(), 0);
  EXPECT_EQ(dp->size(), 1);
  EXPECT_EQ(comm_->name(), "tp");
}

TEST_F(SelfTest, SplitWithNegativeColorTakesNoPart) {
  EXPECT_EQ(comm_->split(-1, 0, "dp"), nullptr);
}

TEST_F(SelfTest, SplitSeparatesMessages) {
  const auto dp = comm_->split(0, 0, "dp");
  const Tensor a = filled(3, DType::F32, 1), b = filled(3, DType::F32, 2);
  Work send = comm_->send(a, 0), recv = dp->recv(b, 0);
  EXPECT_FALSE(send.done());
  EXPECT_FALSE(recv.done());
  comm_->recv(filled(3, DType::F32, 2), 0).wait();
  dp->send(a, 0).wait();
  recv.wait();
  EXPECT_TRUE(same(a, b));
}

}  // namespace
}  // namespace aisc
