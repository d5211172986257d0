// A device that is not there: the time it takes, its lanes of copies, its room.
#include "common/model/emulated_device.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/ops/ops.h"
#include "tests/support/error_says.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

// 1 s an operation, 1 byte/s of memory; a copy to the host takes 10 s and a second for each byte.
Machine by_hand() {
  Machine m;
  m.name = "by hand";
  m.flops = {{DType::F32, 1e12}};
  m.vector_flops = 1e12;
  m.memory_bandwidth = 1;
  m.launch_seconds = 1;
  m.host_link = {10, 1};
  return m;
}

class EmulatedTest : public ::testing::Test {
 protected:
  const Machine machine_ = by_hand();
  Clock clock_ = Clock::virtual_time();
  EmulatedDevice device_{clock_, machine_};
  EmulatedDevice meta_{clock_, machine_, {.meta = true}};
  CpuDevice host_;
};

TEST_F(EmulatedTest, OperationsTakeTheirTimeOneAfterAnother) {
  const Tensor x({4}, DType::F32, device_), y({4}, DType::F32, device_);
  ops::fill(x, 2);
  EXPECT_EQ(clock_.now(), 1 + 16);
  ops::scale(y, x, 3);
  EXPECT_EQ(clock_.now(), 17 + 1 + 32);
  EXPECT_EQ(to_doubles(y), std::vector<double>(4, 6.0));
  device_.zero(y);
  EXPECT_EQ(clock_.now(), 50 + 1 + 16);
  device_.copy(y, x);
  EXPECT_EQ(clock_.now(), 67 + 1 + 32);
  EXPECT_EQ(to_doubles(y), std::vector<double>(4, 2.0));
}

// Two copies share a lane, the other direction has one of its own, and work runs beside them.
TEST_F(EmulatedTest, CopiesTakeLanesBesideTheWork) {
  const Tensor a({2}, DType::F32, device_), b({2}, DType::F32, device_);
  const Tensor to({2}, DType::F32, host_), from({2}, DType::F32, host_);
  ops::fill(a, 5);  // until 9
  ops::fill(from, 7);
  Work out = device_.copy_async(to, a, Queue::ToHost);     // 9 to 27
  Work again = device_.copy_async(to, a, Queue::ToHost);   // 27 to 45
  Work in = device_.copy_async(b, from, Queue::ToDevice);  // 9 to 27
  EXPECT_EQ(clock_.now(), 9);
  EXPECT_FALSE(in.done());
  ops::fill(a, 6);
  EXPECT_EQ(clock_.now(), 18) << "beside the copies";
  in.wait();
  EXPECT_EQ(clock_.now(), 27);
  EXPECT_TRUE(out.done());
  EXPECT_EQ(to_doubles(b), std::vector<double>(2, 7.0));
  again.wait();
  EXPECT_EQ(clock_.now(), 45);
  out.wait();
  EXPECT_EQ(clock_.now(), 45);
}

TEST_F(EmulatedTest, OfSeveralCopiesTheEarliestIsWaitedFor) {
  const Tensor a({8}, DType::F32, device_), b({2}, DType::F32, device_);
  const Tensor to({8}, DType::F32, host_), from({2}, DType::F32, host_);
  Work works[] = {device_.copy_async(to, a, Queue::ToHost),       // until 42
                  device_.copy_async(b, from, Queue::ToDevice)};  // until 18
  EXPECT_EQ(wait_any(works), 1u);
  EXPECT_EQ(clock_.now(), 18);
  EXPECT_EQ(wait_any({works, 1}), 0u);
  EXPECT_EQ(clock_.now(), 42);
}

TEST_F(EmulatedTest, WhatIsCopiedIsThereWhenItIsWaitedFor) {
  const Tensor from({3}, DType::F32, host_), to({3}, DType::F32, device_);
  ops::fill(from, 4);
  ops::fill(to, 1);
  Work work = device_.copy_async(to, from, Queue::ToDevice);
  for (const double value : to_doubles(to)) EXPECT_TRUE(std::isnan(value)) << "not yet";
  work.wait();
  EXPECT_EQ(to_doubles(to), std::vector<double>(3, 4.0));
  ops::fill(to, 9);
  host_.copy(from, to);  // on Queue::Compute, asked of the other side: waited for at once
  EXPECT_EQ(to_doubles(from), std::vector<double>(3, 9.0));
}

TEST_F(EmulatedTest, HasTheRoomOfItsMachine) {
  Machine small = by_hand();
  small.capacity = 1000;
  EmulatedDevice device(clock_, small, {.meta = true});
  const Tensor half({125}, DType::F32, device, Purpose::Gradients);
  EXPECT_TRUE(error_says([&] { Tensor({126}, DType::F32, device, Purpose::Optimizer); },
                         {"by hand (meta): out of memory", "504 bytes asked for optimizer",
                          "500 of 1000 in use", "gradients", "500"}));
  EXPECT_EQ(device.ledger()[Purpose::Gradients].live_bytes, 500);
}

TEST_F(EmulatedTest, WithoutNumbersAnySizeFitsAndTakesTheSameTime) {
  const std::int64_t n = std::int64_t{1} << 40;  // 4 TiB
  const Tensor x({n}, DType::F32, meta_), y({n}, DType::F32, meta_);
  EXPECT_NE(x.view().raw(), y.view().raw());
  ops::add(y, y, x);
  EXPECT_EQ(clock_.now(), 1 + 12.0 * static_cast<double>(n));
  EXPECT_EQ(ops::sum_of_squares(x), 0);
  EXPECT_TRUE(error_says([&] { x.data<float>(); }, {"by hand (meta)", "no values"}));
  const Tensor to({2}, DType::F32, host_), part({2}, DType::F32, meta_);
  ops::fill(to, 3);
  meta_.copy(to, part);
  EXPECT_EQ(to_doubles(to), std::vector<double>(2, 0.0));
  meta_.copy(part, to);
}

TEST_F(EmulatedTest, WithoutNumbersACollectiveOfOneRankMovesNothing) {
  const auto self = make_self_communicator();
  const Tensor x({4}, DType::F32, meta_), y({4}, DType::F32, meta_);
  self->all_reduce(x).wait();
  self->all_gather(x, y).wait();
  self->broadcast(y, 0).wait();
  EXPECT_EQ(self->stats()[CommOp::AllGather].calls, 1);
}

TEST_F(EmulatedTest, ChecksArgumentsAsEverywhere) {
  const Tensor x({4}, DType::F32, meta_), y({5}, DType::F32, meta_);
  EXPECT_TRUE(error_says([&] { ops::add(y, x, x); }, {"add: out", "expected 4 elements"}));
}

TEST(EmulatedDevice, NeedsVirtualTime) {
  Clock wall = Clock::wall();
  const Machine machine = by_hand();
  EXPECT_TRUE(error_says([&] { EmulatedDevice(wall, machine); },
                         {"by hand", "virtual time", "found the wall's"}));
  LaunchOptions options = on_machine(machine, 1);
  options.network.reset();
  EXPECT_TRUE(error_says([&] { launch(options, [](Rank) {}); }, {"virtual time", "network"}));
  EXPECT_TRUE(error_says([] { make_device({.kind = DeviceKind::Meta}); }, {"without numbers"}));
}

}  // namespace
}  // namespace aisc
