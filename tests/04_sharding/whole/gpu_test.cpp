// Shards on GPUs: the serial run of the CPU.
#include <gtest/gtest.h>

#include "04_sharding/sharded_units.h"
#include "tests/support/serial_run.h"

namespace aisc {
namespace {

class ShardsOnCudaRanks : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  }
};

TEST_P(ShardsOnCudaRanks, OnOneGpuEqualTheSerialRunInEveryStage) {
  const std::vector<RunRecord> serial = run_layout({}, odd_training(), 2);
  for (const int stage : {1, 2, 3})
    EXPECT_TRUE(
        same_steps(serial, run_layout({.ranks = GetParam(), .kind = DeviceKind::Cuda, .gpu = 0},
                                      odd_training(3), 2, sharded({.stage = stage}))))
        << "stage " << stage;
}

TEST_P(ShardsOnCudaRanks, WithAGpuEachEqualTheSerialRun) {
  if (gpu_count() < GetParam())
    GTEST_SKIP() << gpu_count() << " GPUs for " << GetParam() << " ranks";
  const std::vector<RunRecord> serial = run_layout({}, odd_training(), 2);
  EXPECT_TRUE(same_steps(
      serial, run_layout({.ranks = GetParam(), .kind = DeviceKind::Cuda}, odd_training(), 2,
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
