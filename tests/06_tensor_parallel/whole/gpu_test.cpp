// Layers in parts on GPUs: the serial run of the CPU.
#include <gtest/gtest.h>

#include "06_tensor_parallel/parallel_block.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/devices.h"
#include "tests/support/run_layout.h"

namespace aisc {
namespace {

TrainConfig config_of_gpu(int tp, const char* recompute = "none") {
  TrainConfig c;
  c.model = odd_config(DType::F64, 0.1);
  c.model.heads = 4;
  c.model.width = 16;
  c.recompute = Recompute::parse(recompute);
  c.gradient_dtype = DType::F64;
  c.batch = 4;
  c.tp = tp;
  c.steps = 10;
  c.learning_rate = 3e-3;
  return c;
}

class TensorParallelOnCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  }
};

TEST_F(TensorParallelOnCuda, OnOneGpuEqualsTheSerialRun) {
  const std::vector<RunRecord> serial = run_layout({}, config_of_gpu(1), 2);
  for (const char* recompute : {"none", "core", "block"})
    EXPECT_TRUE(same_steps(serial, run_layout({.ranks = 2, .kind = DeviceKind::Cuda, .gpu = 0},
                                              config_of_gpu(2, recompute), 2, tensor_parallel())))
        << recompute;
  EXPECT_TRUE(same_steps(serial, run_layout({.ranks = 8, .kind = DeviceKind::Cuda, .gpu = 0},
                                            config_of_gpu(4), 2, tensor_parallel())));
}

TEST_F(TensorParallelOnCuda, WithAGpuEachEqualsTheSerialRun) {
  if (gpu_count() < 2) GTEST_SKIP() << gpu_count() << " GPU for 2 ranks";
  EXPECT_TRUE(same_steps(
      run_layout({}, config_of_gpu(1), 2),
      run_layout({.ranks = 2, .kind = DeviceKind::Cuda}, config_of_gpu(2), 2, tensor_parallel())));
}

}  // namespace
}  // namespace aisc
