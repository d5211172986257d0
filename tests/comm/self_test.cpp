// The communicator of one rank: what waiting for oneself leads to. That each operation does what it
// should is shown by conformance tests of one rank.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

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
