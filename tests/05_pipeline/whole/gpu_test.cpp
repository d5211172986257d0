// A pipeline on GPUs: the serial run of the CPU.
#include <gtest/gtest.h>

#include "05_pipeline/pipelined.h"
#include "tests/support/devices.h"
#include "tests/support/serial_run.h"

namespace aisc {
namespace {

const PipelineChoice kChoices[] = {
    {.schedule = "1f1b"},
    {.schedule = "interleaved", .chunks = 2},
    {.schedule = "zb-h1"},
    {.schedule = "gpipe", .again = Again::Early},
};

// Two ranks on `gpu`, or on one each.
void expect_serial_run(int gpu) {
  const TrainConfig config = odd_training(2, 0, 4, 4, 4);
  const std::vector<RunRecord> serial = serial_steps(config, 2);
  for (const PipelineChoice& choice : kChoices)
    EXPECT_TRUE(same_steps(serial, run_layout({.ranks = 2, .kind = DeviceKind::Cuda, .gpu = gpu},
                                              config, 2, pipelined(choice))))
        << choice.schedule;
}

TEST(PipelineOnCuda, OnOneGpuEqualsTheSerialRunByAnySchedule) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  expect_serial_run(0);
}

TEST(PipelineOnCuda, WithAGpuEachEqualsTheSerialRun) {
  if (gpu_count() < 2) GTEST_SKIP() << gpu_count() << " GPUs for 2 ranks";
  expect_serial_run(-1);
}

}  // namespace
}  // namespace aisc
