// Memory: the cache in front of it, its limit, its alignment, and the books that are kept of it.
#include "common/core/device.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "common/core/tensor.h"
#include "tests/support/error_says.h"
#include "tests/support/ledger_checks.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

Tensor bytes(std::int64_t count, Device& device, Purpose purpose = Purpose::Activations) {
  return Tensor({count}, DType::U8, device, purpose);
}

TEST(DeviceCache, ServesASecondRequestOfTheSameSize) {
  CpuDevice device;
  const void* first = nullptr;
  {
    const Tensor x = bytes(1000, device);
    first = x.view().raw();
    EXPECT_EQ(device.ledger().cache_misses, 1);
    EXPECT_EQ(device.ledger().cached_bytes, 0);
  }
  EXPECT_GE(device.ledger().cached_bytes, 1000);
  const Tensor y = bytes(1000, device);
  EXPECT_EQ(y.view().raw(), first);
  EXPECT_EQ(device.ledger().cache_misses, 1);
  EXPECT_EQ(device.ledger().allocations, 2);
  EXPECT_EQ(device.ledger().cached_bytes, 0);
}

// Eight classes between powers of two: a request up to an eighth smaller finds the block, one that
// is larger or much smaller does not.
TEST(DeviceCache, ServesSlightlySmallerRequests) {
  CpuDevice device;
  const auto misses_after = [&](std::int64_t freed, std::int64_t asked) {
    device.trim();
    { const Tensor x = bytes(freed, device); }
    const std::int64_t before = device.ledger().cache_misses;
    const Tensor y = bytes(asked, device);
    return device.ledger().cache_misses - before;
  };
  EXPECT_EQ(misses_after(8 * kMiB, 8 * kMiB), 0);
  EXPECT_EQ(misses_after(8 * kMiB, 8 * kMiB - 1000), 0);
  EXPECT_EQ(misses_after(8 * kMiB, 8 * kMiB - kMiB / 2 + 1), 0);
  EXPECT_EQ(misses_after(8 * kMiB, 8 * kMiB + 1), 1);
  EXPECT_EQ(misses_after(8 * kMiB, 4 * kMiB), 1);
  EXPECT_EQ(misses_after(1, 64), 0);
  EXPECT_EQ(misses_after(64, 65), 1);
  // Of large blocks an eighth would be much: 32 classes above 16 MiB.
  EXPECT_EQ(misses_after(64 * kMiB, 64 * kMiB - kMiB + 1), 0);
  EXPECT_EQ(misses_after(64 * kMiB, 64 * kMiB - kMiB), 1);
}

TEST(DeviceCache, IsEmptyAfterTrim) {
  CpuDevice device;
  { const Tensor x = bytes(5000, device); }
  device.trim();
  EXPECT_EQ(device.ledger().cached_bytes, 0);
  const Tensor y = bytes(5000, device);
  EXPECT_EQ(device.ledger().cache_misses, 2);
}

TEST(DeviceCapacity, IsALimitWithAMessage) {
  CpuDevice device{{.capacity_bytes = 1000}};
  const Tensor x = bytes(700, device, Purpose::Parameters);
  EXPECT_TRUE(error_says([&] { bytes(301, device, Purpose::Workspace); },
                         {"cpu", "out of memory", "301 bytes", "workspace", "700 of 1000"}));
  const Tensor y = bytes(300, device);  // exactly full
  EXPECT_EQ(device.ledger().total.live_bytes, 1000);
}

TEST(DeviceCapacity, CountsWhatIsLiveNotWhatIsCached) {
  CpuDevice device{{.capacity_bytes = 1000}};
  { const Tensor x = bytes(900, device); }
  EXPECT_NO_THROW(bytes(200, device));
}

TEST(MakeDevice, MakesTheHosts) {
  const auto device = make_device({.capacity_bytes = 1000}, 3);
  EXPECT_STREQ(device->name(), "cpu");
  EXPECT_EQ(device->kind(), DeviceKind::Cpu);
  EXPECT_TRUE(error_says([&] { bytes(1001, *device); }, {"out of memory"}));
  device->synchronize();
  EXPECT_TRUE(make_pinned_memory()->is_host());
}

TEST(MakeDevice, SaysWhyThereIsNoSuchGpu) {
  EXPECT_TRUE(error_says([&] { make_device({.kind = DeviceKind::Cuda, .index = 99}); }, {"cuda:"}));
}

// A device whose system has only so much memory.
class SmallSystem final : public Device {
 public:
  SmallSystem() : Device(0) {}
  ~SmallSystem() override { trim(); }
  const char* name() const override { return "small"; }

 private:
  void* do_allocate(std::size_t size) override {
    if (blocks_.size() == 2) return nullptr;
    return blocks_.emplace_back(std::make_unique<char[]>(size)).get();
  }
  void do_free(void* block) noexcept override {
    std::erase_if(blocks_, [=](const auto& b) { return b.get() == block; });
  }
  void do_poison(void*, std::size_t) override {}
  Work do_copy(View, ConstView, Queue) override { return Work(); }
  void do_zero(void*, std::size_t) override {}

  std::vector<std::unique_ptr<char[]>> blocks_;
};

TEST(DeviceCapacity, OfTheSystemIsUsedUpBeforeItFails) {
  SmallSystem device;
  { const Tensor x = bytes(100, device), y = bytes(1000, device); }
  const Tensor a = bytes(5000, device);  // the cache is given back to make room
  const Tensor b = bytes(6000, device);
  EXPECT_TRUE(error_says([&] { bytes(7000, device, Purpose::Gradients); },
                         {"small", "no 7168 bytes more", "gradients", "11000 bytes are in use"}));
  EXPECT_EQ(device.ledger().total.live_bytes, 11'000);
}

TEST(DeviceMemory, IsAlignedToCacheLinesAndHugePages) {
  CpuDevice device;
  for (const std::int64_t size :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{63}, std::int64_t{1000}, 2 * kMiB - 200'000})
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes(size, device).view().raw()) % 64, 0u) << size;
  for (const std::int64_t size : {2 * kMiB, 3 * kMiB + 5, 9 * kMiB}) {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes(size, device).view().raw());
    EXPECT_EQ(address % (2 * kMiB), 0u) << size;
  }
}

TEST(DeviceMemory, IsPoisonedAnewWhenItComesFromTheCache) {
  CpuDevice device{{.poison = true}};
  { const Tensor x = Tensor::zeros({100}, DType::F32, device); }
  for (const double value : to_doubles(Tensor({100}, DType::F32, device))) EXPECT_NE(value, value);
}

TEST(DeviceLedger, KeepsLiveAndPeakByPurpose) {
  CpuDevice device;
  const Tensor parameters = bytes(100, device, Purpose::Parameters);
  {
    const Tensor a = bytes(50, device), b = bytes(30, device);
    const Tensor w = bytes(500, device, Purpose::Workspace);
  }
  { const Tensor w = bytes(520, device, Purpose::Workspace); }
  const Ledger ledger = device.ledger();
  EXPECT_EQ(ledger[Purpose::Parameters].live_bytes, 100);
  EXPECT_EQ(ledger[Purpose::Activations].live_bytes, 0);
  EXPECT_EQ(ledger[Purpose::Activations].peak_bytes, 80);
  EXPECT_EQ(ledger[Purpose::Workspace].peak_bytes, 520);
  EXPECT_EQ(ledger.total.live_bytes, 100);
  EXPECT_EQ(ledger.total.peak_bytes, 100 + 80 + 500) << "the peak of the sum";
}

TEST(DeviceLedger, ForgetsPeaksOnRequest) {
  CpuDevice device;
  const Tensor x = bytes(10, device);
  { const Tensor y = bytes(90, device); }
  device.reset_peaks();
  EXPECT_EQ(device.ledger()[Purpose::Activations].peak_bytes, 10);
  EXPECT_EQ(device.ledger().total.peak_bytes, 10);
}

TEST(DeviceLedger, NamesLeaksByPurpose) {
  CpuDevice device;
  const Tensor old = bytes(7, device, Purpose::Parameters);
  const Ledger before = device.ledger();
  EXPECT_EQ(device.ledger().leaked_since(before), "");
  const Tensor a = bytes(4096, device), b = bytes(8, device, Purpose::Communication);
  EXPECT_EQ(device.ledger().leaked_since(before),
            "activations: 4096 bytes, communication: 8 bytes");
}

TEST(DeviceLedger, PrintsATable) {
  CpuDevice device;
  const Tensor x = bytes(12345, device, Purpose::Optimizer);
  const std::string table = device.ledger().to_string();
  for (int p = 0; p < kPurposeCount; ++p)
    EXPECT_NE(table.find(name_of(static_cast<Purpose>(p))), std::string::npos) << table;
  EXPECT_NE(table.find("12345"), std::string::npos) << table;
}

TEST(DeviceLedger, IsRightWhenRanksShareADevice) {
  CpuDevice device;
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 4; ++rank)
      ranks.emplace_back([&device, rank] {
        for (int i = 0; i < 500; ++i) {
          const Tensor x = bytes(64 * (1 + (i + rank) % 7), device);
          const Tensor y = x.share();
        }
      });
  }
  EXPECT_EQ(device.ledger().total.live_bytes, 0);
  EXPECT_EQ(device.ledger().allocations, 2000);
}

TEST(DeviceCopies, MoveTheSameCountAndTypeOnly) {
  CpuDevice device, other;
  const Tensor from = from_doubles({1, 2, 3}, {3}, DType::F32, device);
  const Tensor to({3, 1}, DType::F32, other);
  device.copy(to, from);
  EXPECT_EQ(to_doubles(to), (std::vector<double>{1, 2, 3}));
  Work work = device.copy_async(to, from, Queue::ToHost);
  EXPECT_TRUE(work.done());
  EXPECT_TRUE(
      error_says([&] { device.copy(to.rows(0, 2), from); }, {"copy", "2 x F32", "3 x F32"}));
  EXPECT_TRUE(error_says([&] { device.copy(Tensor({3}, DType::F64, device), from); },
                         {"copy", "3 x F64", "3 x F32"}));
}

TEST(DeviceCopies, BetweenDevicesBesideComputingAreCounted) {
  CpuDevice here, there;
  const Tensor a({100}, DType::F32, here), b({100}, DType::F32, there), c({100}, DType::F32, here);
  for (const Tensor* tensor : {&a, &b, &c}) tensor->device().zero(*tensor);
  here.copy_async(a, b, Queue::ToDevice).wait();
  here.copy_async(b, a, Queue::ToHost).wait();
  here.copy_async(b.view().flat(0, 10), a.view().flat(0, 10), Queue::ToHost).wait();
  here.copy_async(c, a, Queue::ToHost).wait();
  here.copy(a, b);
  EXPECT_EQ(here.copied().to_device, 400);
  EXPECT_EQ(here.copied().from_device, 440);
  EXPECT_EQ(there.copied().to_device, 0) << "it was asked for none";
}

TEST(Devices, HaveNames) {
  EXPECT_EQ(parse_device("cpu").kind, DeviceKind::Cpu);
  EXPECT_EQ(parse_device("cuda").kind, DeviceKind::Cuda);
  EXPECT_EQ(parse_device("cuda").index, -1);
  EXPECT_EQ(parse_device("cuda:0").index, 0);
  EXPECT_EQ(parse_device("cuda:12").kind, DeviceKind::Cuda);
  EXPECT_EQ(parse_device("cuda:12").index, 12);
  for (const char* name : {"", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:1x", "cuda:99999999999"})
    EXPECT_TRUE(error_says([&] { parse_device(name); },
                           {"device \"" + std::string(name) + "\"", "cpu, cuda, or cuda:"}));
}

TEST(DeviceExtensions, AreOneOfEachTypeForEachDevice) {
  struct Handles {
    int uses = 0;
  };
  CpuDevice device, other;
  device.extension<Handles>().uses = 5;
  EXPECT_EQ(device.extension<Handles>().uses, 5);
  EXPECT_EQ(other.extension<Handles>().uses, 0);
}

}  // namespace
}  // namespace aisc
