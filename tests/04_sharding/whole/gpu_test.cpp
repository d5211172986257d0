// Shards on GPUs: the serial run of the CPU.
#include <gtest/gtest.h>

#include "04_sharding/sharded_units.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/conformance.h"
#include "tests/support/devices.h"
#include "tests/support/run_layout.h"

namespace aisc {
namespace {

TrainConfig config_of_gpu(std::int64_t micro_batches) {
  TrainConfig c;
  c.model = odd_config(DType::F64, 0.1);
  c.gradient_dtype = DType::F64;
  c.batch = 12;
  c.micro_batches = micro_batches;
  c.steps = 10;
  c.learning_rate = 3e-3;
  return c;
}

class ShardsOnCudaRanks : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  }
};

TEST_P(ShardsOnCudaRanks, OnOneGpuEqualTheSerialRunInEveryStage) {
  const std::vector<RunRecord> serial = run_layout({}, config_of_gpu(1), 2);
  for (const int stage : {1, 2, 3})
    EXPECT_TRUE(
        same_steps(serial, run_layout({.ranks = GetParam(), .kind = DeviceKind::Cuda, .gpu = 0},
                                      config_of_gpu(3), 2, sharded({.stage = stage}))))
        << "stage " << stage;
}

TEST_P(ShardsOnCudaRanks, WithAGpuEachEqualTheSerialRun) {
  if (gpu_count() < GetParam())
    GTEST_SKIP() << gpu_count() << " GPUs for " << GetParam() << " ranks";
  const std::vector<RunRecord> serial = run_layout({}, config_of_gpu(1), 2);
  EXPECT_TRUE(same_steps(
      serial, run_layout({.ranks = GetParam(), .kind = DeviceKind::Cuda}, config_of_gpu(1), 2,
                         sharded({.stage = 3, .gather = {.prefetch = 2}, .bucket = 0}))));
}

INSTANTIATE_TEST_SUITE_P(Sizes, ShardsOnCudaRanks,
                         ::testing::ValuesIn(device_kinds().size() > 1
                                                 ? conformance::rank_counts({1, 2})
                                                 : std::vector<int>()),
                         ::testing::PrintToStringParamName());
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ShardsOnCudaRanks);

}  // namespace
}  // namespace aisc
