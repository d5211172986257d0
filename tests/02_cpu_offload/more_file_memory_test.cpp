// Host memory that lies in a file: what is in memory when, and errors.
#include "02_cpu_offload/more/file_memory.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/statfs.h>

#include <numeric>

#include "02_cpu_offload/host_update.h"
#include "common/comm/launch.h"
#include "common/ops/ops.h"
#include "tests/support/error_says.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

constexpr std::int64_t kMebi = std::int64_t{1} << 20;
constexpr long kTmpfs = 0x01021994;  // its pages are its file: they never leave

bool is_in_memory(const std::string& folder) {
  struct statfs disk {};
  return statfs(folder.c_str(), &disk) != 0 || disk.f_type == kTmpfs;
}

TEST(FileMemory, LargeBlocksLieInItAndAreTakenAgain) {
  const TemporaryFolder folder;
  FileMemory memory(folder.path());
  const Tensor small({100}, DType::F32, memory);
  EXPECT_EQ(memory.file_bytes(), 0);
  {
    const Tensor a({kMebi}, DType::F32, memory), b({kMebi / 2}, DType::F32, memory);
    EXPECT_EQ(memory.file_bytes(), 6 * kMebi);
  }
  memory.trim();
  const Tensor again({kMebi}, DType::F32, memory);
  EXPECT_EQ(memory.file_bytes(), 6 * kMebi);
}

TEST(FileMemory, WhatIsBehindTakesNoMemoryAndComesBackAsItWas) {
  const TemporaryFolder folder;
  if (is_in_memory(folder.path())) GTEST_SKIP() << "not assessed: a file system in memory";
  FileMemory memory(folder.path());
  const Tensor x({2 * kMebi}, DType::F32, memory);  // 8 MiB
  std::iota(x.data<float>(), x.data<float>() + x.count(), 1.0F);
  memory.settle();
  EXPECT_EQ(memory.resident_bytes(), 8 * kMebi);
  memory.behind(x.view().flat(0, kMebi));
  memory.settle();
  EXPECT_EQ(memory.resident_bytes(), 4 * kMebi) << "the other half is in use";
  memory.behind(x);
  memory.settle();
  EXPECT_EQ(memory.resident_bytes(), 0);
  memory.ahead(x.view().flat(0, kMebi / 4));
  memory.settle();
  EXPECT_GE(memory.resident_bytes(), kMebi);
  for (const std::int64_t i : {std::int64_t{0}, kMebi, 2 * kMebi - 1})
    EXPECT_EQ(x.data<float>()[i], static_cast<float>(i + 1));
}

// A range that ends inside a page leaves that page: the rest of it is somebody else's. Machines of
// ARM have pages of 4, 16 or 64 KiB; some of the system's serve for one of theirs.
TEST(FileMemory, PagesThatAreSharedStay) {
  const TemporaryFolder folder;
  if (is_in_memory(folder.path())) GTEST_SKIP() << "not assessed: a file system in memory";
  for (const std::size_t page :
       {std::size_t{4} << 10, std::size_t{16} << 10, std::size_t{64} << 10}) {
    if (page % page_bytes() != 0) continue;
    FileMemory memory(folder.path(), 2, page);
    const auto floats = static_cast<std::int64_t>(page / sizeof(float));
    const Tensor x = Tensor::zeros({kMebi}, DType::F32, memory);
    memory.behind(x.view().flat(floats - 24, floats));  // in two pages: none is its own
    memory.settle();
    EXPECT_EQ(memory.resident_bytes(), 4 * kMebi);
    memory.behind(x.view().flat(floats, floats));
    memory.settle();
    EXPECT_EQ(memory.resident_bytes(), 4 * kMebi - 4 * floats);
  }
}

TEST(FileMemory, OtherViewsAreLeftAlone) {
  const TemporaryFolder folder;
  FileMemory memory(folder.path());
  CpuDevice cpu;
  const Tensor elsewhere = Tensor::zeros({kMebi}, DType::F32, cpu);
  const Tensor small = Tensor::zeros({100}, DType::F32, memory);
  for (const Tensor* tensor : {&elsewhere, &small}) {
    memory.ahead(*tensor);
    memory.behind(*tensor);
  }
  memory.settle();
  EXPECT_EQ(elsewhere.data<float>()[7] + small.data<float>()[7], 0);
}

TEST(FileMemory, AFolderThatIsNotThereIsAnError) {
  EXPECT_TRUE(error_says([] { FileMemory memory("/no/such/folder"); },
                         {"disk:/no/such/folder", "no file can be made there"}));
}

TEST(FileMemory, AFullDiskIsAnErrorWhenMemoryIsTaken) {
  const TemporaryFolder folder;
  if (mount("none", folder.path().c_str(), "tmpfs", 0, "size=4m") != 0)
    GTEST_SKIP() << "not assessed: no small file system can be mounted";
  {
    FileMemory memory(folder.path());
    const Tensor fits({kMebi / 2}, DType::F32, memory);
    EXPECT_TRUE(error_says([&] { Tensor({kMebi}, DType::F32, memory); },
                           {"disk:" + folder.path(), "no room for 4194304 bytes", "are free"}));
    ops::fill(fits, 3);
  }
  umount(folder.path().c_str());
}

TEST(FileMemory, AnUpdateHoldsSomePiecesOfItsState) {
  const TemporaryFolder folder;
  if (is_in_memory(folder.path())) GTEST_SKIP() << "not assessed: a file system in memory";
  launch({.ranks = 1, .bind = false}, [&](const Rank& rank) {
    const auto memory = std::make_shared<FileMemory>(folder.path());
    make_host(rank, memory, memory);
    constexpr std::int64_t kCount = 4 * kMebi;  // m and v: 32 MiB, in 16 pieces
    Tensor weights[2], gradients[2];
    std::vector<OptimizerSlice> slices[2];
    for (int i = 0; i < 2; ++i) {
      weights[i] = random_tensor({kCount}, DType::F32, rank.device, "w");
      gradients[i] = random_tensor({kCount}, DType::F32, rank.device, "g");
      slices[i] = {{.name = "w", .weight = weights[i].view(), .gradient = gradients[i].view()}};
    }
    AdamW adamw(slices[0], {});
    HostUpdate host(rank, slices[1], {.piece = kMebi / 4});
    for (int step = 0; step < 2; ++step) {
      adamw.step({.learning_rate = .01});
      host.step({.learning_rate = .01});
    }
    EXPECT_EQ(to_doubles(weights[0]), to_doubles(weights[1]));
    memory->settle();
    const std::int64_t copies = 4 * kCount;  // of weights, which the update writes, stay
    EXPECT_LE(memory->resident_bytes(), copies + 8 * kMebi);
    EXPECT_TRUE(error_says([&] { make_host(rank, memory); }, {"host: it is there already"}));
  });
}

}  // namespace
}  // namespace aisc
