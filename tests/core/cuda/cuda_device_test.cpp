// A GPU as a device: memory, copies on each queue, what kernels report, who is asked while the host
// waits.
#include "common/core/cuda/cuda_device.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "common/core/error.h"
#include "common/core/tensor.h"
#include "tests/core/cuda/raise_fault.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

constexpr std::int64_t kCount = 100'003;

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // An emulated GPU begins everything so late: who does not wait for it reads something else.
    setenv("AISC_EMULATED_GPU_DELAY_US", "300", 0);
    if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
    device_ = make_device({.kind = DeviceKind::Cuda, .index = 0});
  }
  CudaDevice& gpu() { return as_cuda(*device_); }
  static Tensor counting(Device& host, std::int32_t first) {
    Tensor x({kCount}, DType::I32, host);
    for (std::int64_t i = 0; i < kCount; ++i)
      x.data<std::int32_t>()[i] = first + static_cast<std::int32_t>(i);
    return x;
  }
  static void expect_counting(const Tensor& x, std::int32_t first) {
    for (std::int64_t i = 0; i < kCount; ++i)
      ASSERT_EQ(x.data<std::int32_t>()[i], first + static_cast<std::int32_t>(i)) << i;
  }

  CpuDevice host_;
  std::unique_ptr<Device> device_;
};

TEST_F(CudaDeviceTest, IsNotTheHost) {
  EXPECT_STREQ(device_->name(), "cuda:0");
  EXPECT_FALSE(device_->is_host());
  EXPECT_EQ(device_->kind(), DeviceKind::Cuda);
  const Tensor x({4}, DType::F32, *device_);
  EXPECT_TRUE(error_says([&] { x.values<float>(); }, {"cuda:0", "read by the host"}));
}

TEST_F(CudaDeviceTest, ThatDoesNotExistIsAnError) {
  const std::string there_are = "there are " + std::to_string(gpu_count()) + " GPUs";
  EXPECT_TRUE(error_says([&] { make_device({.kind = DeviceKind::Cuda, .index = gpu_count()}); },
                         {"cuda:" + std::to_string(gpu_count()), there_are}));
}

TEST_F(CudaDeviceTest, RanksOfANodeTakeTurns) {
  for (int rank = 0; rank < 2 * gpu_count(); ++rank) {
    const auto device = make_device({.kind = DeviceKind::Cuda}, rank);
    EXPECT_EQ(device->name(), "cuda:" + std::to_string(rank % gpu_count()));
  }
}

TEST_F(CudaDeviceTest, CopiesThereAndBackOnEveryQueue) {
  for (const Queue queue : {Queue::Compute, Queue::ToHost, Queue::ToDevice}) {
    const Tensor from = counting(host_, 5), to({kCount}, DType::I32, host_);
    const Tensor there({kCount}, DType::I32, *device_);
    device_->copy_async(there, from, queue).wait();
    device_->copy_async(to, there, queue).wait();
    expect_counting(to, 5);
  }
}

// The host's device may be asked as well: it is the GPU that copies.
TEST_F(CudaDeviceTest, CopiesWhoeverIsAsked) {
  const Tensor from = counting(host_, 1), to({kCount}, DType::I32, host_);
  const Tensor there({kCount}, DType::I32, *device_), again({kCount}, DType::I32, *device_);
  host_.copy(there, from);
  host_.copy(again, there);
  host_.copy(to, again);
  expect_counting(to, 1);
  expect_counting(from.clone(), 1);
}

// A copy on a queue of its own sees what the compute queue was given before, and what that is given
// after wait() comes after the copy.
TEST_F(CudaDeviceTest, QueuesAreInOrderWithComputation) {
  const auto pinned = make_pinned_memory();
  EXPECT_TRUE(pinned->is_host());
  const Tensor from = counting(*pinned, 7), to({kCount}, DType::I32, *pinned);
  const Tensor x({kCount}, DType::I32, *device_);
  for (int round = 0; round < 5; ++round) {
    device_->zero(x);
    device_->copy_async(x, from, Queue::ToDevice).wait();
    Work back = device_->copy_async(to, x, Queue::ToHost);
    back.wait();
    device_->zero(x);
    expect_counting(to, 7);
    device_->zero(to);
  }
  Work dropped = device_->copy_async(x, from, Queue::ToDevice);
  dropped = Work();  // waits
  device_->copy(to, x);
  expect_counting(to, 7);
}

TEST_F(CudaDeviceTest, MemoryOfTheCacheIsReusedInOrder) {
  const Tensor to({kCount}, DType::I32, host_);
  const Tensor kept({kCount}, DType::I32, *device_);
  {
    const Tensor x({kCount}, DType::I32, *device_);
    device_->copy(x, counting(host_, 3));
    device_->copy(kept, x);
  }
  const Tensor y = Tensor::zeros({kCount}, DType::I32, *device_);  // the block of x
  device_->copy(to, kept);
  expect_counting(to, 3);
  EXPECT_EQ(device_->ledger().cache_misses, 2);
}

TEST_F(CudaDeviceTest, CopiesToAnotherGpu) {
  if (gpu_count() < 2) GTEST_SKIP() << "one GPU";
  const auto other = make_device({.kind = DeviceKind::Cuda, .index = 1});
  const Tensor here({kCount}, DType::I32, *device_), there({kCount}, DType::I32, *other);
  const Tensor to({kCount}, DType::I32, host_);
  device_->copy_async(here, counting(host_, 9)).wait();
  Work copy = device_->copy_async(there, here, Queue::ToHost);
  copy.wait();
  device_->zero(here);
  other->copy(to, there);
  expect_counting(to, 9);
}

TEST_F(CudaDeviceTest, KeepsItsBooks) {
  const auto device = make_device({.kind = DeviceKind::Cuda, .index = 0, .capacity_bytes = 1000});
  const Tensor x({700}, DType::U8, *device, Purpose::Parameters);
  EXPECT_TRUE(error_says([&] { Tensor({301}, DType::U8, *device, Purpose::Workspace); },
                         {"cuda:0", "out of memory", "301 bytes", "workspace", "700 of 1000"}));
  EXPECT_EQ(device->ledger()[Purpose::Parameters].live_bytes, 700);
}

TEST_F(CudaDeviceTest, MoreThanThereIsIsAnError) {
  constexpr std::int64_t kPetabyte = std::int64_t{1} << 50;
  EXPECT_TRUE(error_says([&] { Tensor({kPetabyte}, DType::U8, *device_); },
                         {"cuda:0", "the system has no 1125899906842624 bytes more"}));
  const Tensor x = Tensor::zeros({10}, DType::U8, *device_);  // nothing else has suffered
  device_->synchronize();
}

TEST_F(CudaDeviceTest, PoisonsNewMemory) {
  const auto device = make_device({.kind = DeviceKind::Cuda, .index = 0, .poison = true});
  const Tensor to({10}, DType::F32, host_);
  for (int round = 0; round < 2; ++round) {  // of the system, then of the cache
    const Tensor x({10}, DType::F32, *device);
    device->copy(to, x);
    for (const float value : to.values<float>()) EXPECT_NE(value, value);
    device->zero(x);
  }
}

TEST_F(CudaDeviceTest, ThrowsOnceWhatAKernelFound) {
  raise_fault(gpu(), "lookup: id[{}] is {}, expected less than {}", 42, 1);
  EXPECT_TRUE(
      error_says([&] { device_->synchronize(); }, {"lookup: id[0] is 42, expected less than 10"}));
  device_->synchronize();
  raise_fault(gpu(), "lookup: id[{}] is {}, expected less than {}", 100, 64);  // one of them
  const Tensor x = Tensor::zeros({10}, DType::U8, *device_), to({10}, DType::U8, host_);
  EXPECT_TRUE(
      error_says([&] { device_->copy(to, x); }, {"lookup: id[0] is 1", "expected less than 10"}));
  device_->copy(to, x);
}

class Complains final : public CudaDevice::Watch {
 public:
  explicit Complains(bool at_first) : at_first_(at_first) {}
  void look(bool may_block) override {
    ++looks_;
    if (may_block == at_first_) fail("rank 3 is gone");
  }
  int looks() const { return looks_; }

 private:
  const bool at_first_;
  int looks_ = 0;
};

TEST_F(CudaDeviceTest, AsksItsWatchesWhileTheHostWaits) {
  Complains complains(true);
  gpu().add(&complains);
  EXPECT_TRUE(error_says([&] { device_->synchronize(); }, {"rank 3 is gone"}));
  EXPECT_EQ(complains.looks(), 1);
  gpu().remove(&complains);
  device_->synchronize();
  EXPECT_EQ(complains.looks(), 1);
}

}  // namespace
}  // namespace aisc
