// Training in F8 on a GPU is the host's, up to the order of sums.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "10_model_compression/more/f8_training.h"
#include "tests/support/serial_run.h"

namespace aisc {
namespace {

GptConfig config_of_sixteens() {
  return {.layers = 1,
          .heads = 2,
          .width = 32,
          .context = 16,
          .vocabulary = 13,
          .vocabulary_multiple = 16,
          .dtype = DType::BF16};
}

class F8TrainingOnGpu : public ::testing::TestWithParam<F8Scale> {
 protected:
  void SetUp() override {
    if (!has_device(DeviceKind::Cuda)) GTEST_SKIP() << "no GPU";
  }
};

// Operations of a forward and backward.
std::map<std::string, int> operations_of(const GptParts& parts, DeviceKind kind) {
  TestWorld world(kind);
  TestGpt gpt(world, config_of_sixteens(), 1, DType::F32, parts);
  const Tensor tokens = random_tokens(world.device, 1, 16, 13, 1);
  std::map<std::string, int> calls;
  world.device.listen([&](const OpCost& cost) { ++calls[cost.operation]; });
  forward_backward(gpt.model, tokens, tokens, {}, 1.0 / 16);
  world.device.listen({});
  return calls;
}

// Four linear layers of three products.
TEST_P(F8TrainingOnGpu, MultipliesCodesWhereATensorHasOneScale) {
  auto calls = operations_of(f8_parts(gpt2_parts(), {.scale = GetParam()}), DeviceKind::Cuda);
  const bool codes = GetParam() != F8Scale::Block;
  EXPECT_EQ(calls["f8_matmul"], codes ? 12 : 0);
  EXPECT_EQ(calls["to F8"], codes ? 4 * 4 : 0) << "x, dy, and the weight in both passes";
  EXPECT_EQ(calls["round to F8"], codes ? 0 : 4 * 4);
  EXPECT_EQ(calls["largest magnitude"], GetParam() == F8Scale::Delayed ? 4 * 4 : 0)
      << "what is current is found on the GPU, and no host waits for it";
}

// Nats. Numbers of F8 are far apart, so that one that falls to the other side is soon another run.
constexpr double kNatsApart = 0.03;

TEST_P(F8TrainingOnGpu, HasTheLossesOfTheHost) {
  TrainConfig config;
  config.model = config_of_sixteens();
  config.batch = 1;
  config.steps = 3;
  config.warmup_steps = 1;
  config.learning_rate = 1e-2;
  const StepParts parts =
      f8_training({.scale = GetParam(), .layers = {.head = true, .norms = true}});
  const auto host = run_layout({}, config, 3, parts).back().losses;
  const auto gpu = run_layout({.kind = DeviceKind::Cuda}, config, 3, parts).back().losses;
  for (std::size_t i = 0; i < host.size(); ++i) EXPECT_NEAR(gpu[i], host[i], kNatsApart) << i;
}

INSTANTIATE_TEST_SUITE_P(Scales, F8TrainingOnGpu,
                         ::testing::Values(F8Scale::Tensor, F8Scale::Delayed, F8Scale::Block));

}  // namespace
}  // namespace aisc
