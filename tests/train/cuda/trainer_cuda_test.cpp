// Training on a GPU in shorter types; in F64 ranks_test.cpp has it.
#include <gtest/gtest.h>

#include "tests/train/small_run.h"

namespace aisc {
namespace {

// The same numbers in another order of additions, on another device: what the shorter types are off
// by after these steps is a few of their last bits, and grows with every step.
constexpr double kSameRunF32 = 1e-3;  // of weights near 0, which Adam moves by a hundredth a step
constexpr double kLossesBF16 = 0.02;

TEST(TrainerOnCuda, StaysNearTheCpuInShorterTypes) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  const TrainConfig f32 = small_config(DType::F32), bf16 = small_config(DType::BF16);
  EXPECT_TRUE(same_run(run(f32, 5), run(f32, 5, DeviceKind::Cuda), kSameRunF32));
  const RunRecord cpu = run(bf16, 8), gpu = run(bf16, 8, DeviceKind::Cuda);
  for (std::size_t i = 0; i < cpu.losses.size(); ++i)
    EXPECT_NEAR(gpu.losses[i], cpu.losses[i], kLossesBF16) << "step " << i;
}

}  // namespace
}  // namespace aisc
