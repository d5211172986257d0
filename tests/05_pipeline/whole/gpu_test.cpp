// A pipeline on GPUs: the serial run of the CPU.
#include <gtest/gtest.h>

#include "05_pipeline/pipelined.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/devices.h"
#include "tests/support/run_layout.h"

namespace aisc {
namespace {

TrainConfig config_of_gpu(int pp) {
  TrainConfig c;
  c.model = odd_config(DType::F64, 0.1);
  c.model.layers = 4;
  c.gradient_dtype = DType::F64;
  c.batch = 4;
  c.micro_batches = 4;
  c.pp = pp;
  c.steps = 10;
  c.learning_rate = 3e-3;
  return c;
}

const PipelineChoice kChoices[] = {
    {.schedule = "1f1b"},
    {.schedule = "interleaved", .chunks = 2},
    {.schedule = "zb-h1"},
    {.schedule = "gpipe", .again = Again::Early},
};

class PipelineOnCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  }
};

TEST_F(PipelineOnCuda, OnOneGpuEqualsTheSerialRunByAnySchedule) {
  const std::vector<RunRecord> serial = run_layout({}, config_of_gpu(1), 2);
  for (const PipelineChoice& choice : kChoices)
    EXPECT_TRUE(same_steps(serial, run_layout({.ranks = 2, .kind = DeviceKind::Cuda, .gpu = 0},
                                              config_of_gpu(2), 2, pipelined(choice))))
        << choice.schedule;
}

TEST_F(PipelineOnCuda, WithAGpuEachEqualsTheSerialRun) {
  if (gpu_count() < 2) GTEST_SKIP() << gpu_count() << " GPU for 2 ranks";
  const std::vector<RunRecord> serial = run_layout({}, config_of_gpu(1), 2);
  for (const PipelineChoice& choice : kChoices)
    EXPECT_TRUE(same_steps(serial, run_layout({.ranks = 2, .kind = DeviceKind::Cuda},
                                              config_of_gpu(2), 2, pipelined(choice))))
        << choice.schedule;
}

}  // namespace
}  // namespace aisc
