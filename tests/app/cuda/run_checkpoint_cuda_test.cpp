// A checkpoint goes from a GPU to the CPU and back.
#include <gtest/gtest.h>

#include "app/run_checkpoint.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/small_run.h"

namespace aisc {
namespace {

// What a run saved on one device goes on with on the other: the bits of a checkpoint are the same.
TEST(RunCheckpointOnCuda, GoesOnOnTheCpuAndBackFromItsCheckpoints) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  TrainConfig config = small_config(DType::BF16);
  config.gradient_dtype = DType::F32;
  const auto text = words(500);
  const BatchSampler data(text, config.model.context, config.seed);
  TestWorld gpu(DeviceKind::Cuda), cpu, again(DeviceKind::Cuda);
  Trainer first(gpu.rank, config), second(cpu.rank, config), third(again.rank, config);
  for (int i = 0; i < 3; ++i) first.step(data);
  const TemporaryFolder folder;
  const auto pass_on = [&](const char* name, TestWorld& from, const Trainer& saved, TestWorld& to,
                           Trainer& restored) {
    restore_run(to.rank,
                read_checkpoint(save_run(from.rank, folder.path(name), saved, {.config = "{}"})),
                restored);
  };
  pass_on("a", gpu, first, cpu, second);
  pass_on("b", cpu, second, again, third);
  EXPECT_TRUE(same_bits(first.parameters().values(), second.parameters().values()));
  EXPECT_EQ(first.step(data).loss, third.step(data).loss);
  EXPECT_TRUE(same_bits(first.parameters().values(), third.parameters().values()));
}

}  // namespace
}  // namespace aisc
