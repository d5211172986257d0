// Training with weights, gradients and activations on the host is the serial run.
#include <gtest/gtest.h>

#include "02_cpu_offload/host_weights.h"
#include "02_cpu_offload/saved_to_host.h"
#include "tests/support/serial_run.h"

namespace aisc {
namespace {

class OffloadedTraining : public AgainstSerial {};
INSTANTIATE_TEST_SUITE_P(Ranks, OffloadedTraining, ::testing::Values(1, 2, 3, 4));

TEST_P(OffloadedTraining, WithWeightsOnTheHostIsTheSerialRun) {
  expect_serial(odd_training(several()), weights_on_host());
  expect_serial(odd_training(several()), weights_on_host({}, {.prefetch = false}));
}
TEST_P(OffloadedTraining, WithWeightsOnTheHostInVirtualTime) {
  expect_serial_in_virtual_time(odd_training(several()), weights_on_host());
}
TEST_P(OffloadedTraining, WithWeightsOnTheHostWhenMessagesAreLate) {
  expect_serial_when_late(odd_training(several()), weights_on_host());
}
TEST_P(OffloadedTraining, WithAllOnTheHost) {
  const StepParts parts = activations_on_host(weights_on_host(), {.least_bytes = 0});
  expect_serial(odd_training(several(), "block"), parts);
  expect_serial_in_virtual_time(odd_training(several()), parts);
}

// Moved there and back nothing changes.
TEST(ActivationsOnTheHost, LeaveTheSameBits) {
  const TrainConfig config = odd_training(3);
  const auto plain = run_layout({.ranks = 1}, config, 2);
  for (const bool prefetch : {true, false}) {
    const StepParts parts = activations_on_host({}, {.least_bytes = 0, .prefetch = prefetch});
    const Machine machine = find_machine("dgx-a100");
    const auto moved =
        run_layout({.options = on_machine(machine, 1, {.poison = true})}, config, 2, parts);
    EXPECT_TRUE(same_steps(plain, moved, 0));
  }
}

// Weights, gradients and Adam's moments take four times what the device has.
TEST(WeightsOnTheHost, TrainAModelFourTimesAsLargeAsTheDevice) {
  TrainConfig config = odd_training();
  config.model = {
      .layers = 16, .heads = 4, .width = 64, .context = 8, .vocabulary = 61, .dtype = DType::F64};
  config.batch = 4;
  Machine machine = find_machine("dgx-a100");
  const std::int64_t parameters = 16 * 12 * 64 * 64;  // and some more
  machine.capacity = static_cast<double>(parameters * 4 * 8 / 4);
  const auto serial = run_layout({.ranks = 1}, config, 2);
  const LaunchOptions device = on_machine(machine, 1, {.poison = true});
  EXPECT_THROW(run_layout({.options = device}, config, 2), Error);
  EXPECT_TRUE(
      same_steps(serial, run_layout({.options = device}, config, 2,
                                    activations_on_host(weights_on_host(), {.least_bytes = 0}))));
}

}  // namespace
}  // namespace aisc
