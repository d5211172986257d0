// Batch norm on one rank: by hand, at large means, in training and outside it.
#include "13_vision/batch_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "13_vision/image_norm.h"
#include "tests/13_vision/layer_check.h"
#include "tests/nn/layer_check.h"
#include "tests/support/drawn.h"
#include "tests/support/message_of.h"
#include "tests/support/numbers.h"

namespace aisc {
namespace {

constexpr double kEpsilon = 1e-5;

// A layer with weight 2 and bias 1 in each of its channels.
struct TwoAndOne {
  explicit TwoAndOne(std::int64_t channels)
      : layer(world.rank, "norm", channels, {}),
        store(world.device, {{"norm", layer.parameters()}},
              {.value_dtype = DType::F64, .grad_dtype = DType::F64}) {
    ops::fill(layer.parameters()[0]->value(), 2);
    ops::fill(layer.parameters()[1]->value(), 1);
  }
  Tensor forward(const std::vector<double>& x, const Shape& shape, const Pass& pass = {}) {
    Saved nothing = Saved::nothing();
    return layer.forward(from_doubles(x, shape, DType::F64, world.device), nothing, pass);
  }
  TestWorld world;
  BatchNorm layer;
  ParameterStore store;
};

TEST(ChannelMoments, ByHand) {
  CpuDevice device;
  const Tensor x = from_doubles({1, 3, 10, 10, 5, 7, 20, 40}, {2, 2, 1, 2}, DType::F64, device);
  const ChannelMoments moments = channel_moments(x);
  EXPECT_EQ(moments.count, 4);
  EXPECT_EQ(moments.means, (std::vector<double>{4, 20}));
  EXPECT_EQ(moments.squares, (std::vector<double>{9 + 1 + 1 + 9, 100 + 100 + 0 + 400}));
}

// Where the mean is 10^8 spreads, E[x^2] - E[x]^2 would have no digit left.
TEST(ChannelMoments, KeepTheirDigitsAtALargeMean) {
  CpuDevice device;
  const std::int64_t N = drawn("images", 3, 9);
  const Tensor x = random_tensor({N, 1, 4, 4}, DType::F64, device, "x"), far = x.clone();
  for (double& value : far.values<double>()) value += 1e8;
  const double near = channel_moments(x).squares[0];
  // x itself is rounded at 10^8 2^-53, about 1e-8.
  EXPECT_NEAR(channel_moments(far).squares[0], near, 1e-6 * near);
}

// Mean 4, biased variance 5, unbiased 20 / 3.
TEST(BatchNorm, InTrainingByHand) {
  TwoAndOne norm(1);
  const double rstd = 1 / std::sqrt(5 + kEpsilon);
  EXPECT_TRUE(numbers_are("y", norm.forward({1, 3, 5, 7}, {2, 1, 1, 2}),
                          {1 - 6 * rstd, 1 - 2 * rstd, 1 + 2 * rstd, 1 + 6 * rstd}));
  EXPECT_TRUE(numbers_are("running mean", norm.layer.running_mean(), {0.1 * 4}));
  EXPECT_TRUE(numbers_are("running variance", norm.layer.running_variance(),
                          {0.9 * 1 + 0.1 * 20 / 3}, {{"the biased variance was kept", {1.4}}}));
}

TEST(BatchNorm, OutsideTrainingTakesTheRunningOnesAndLeavesThem) {
  TwoAndOne norm(1);
  ops::fill(norm.layer.running_mean(), 3);
  ops::fill(norm.layer.running_variance(), 4 - kEpsilon);
  EXPECT_TRUE(numbers_are("y of one value", norm.forward({7}, {1, 1, 1, 1}, {.training = false}),
                          {2 * (7 - 3) / 2.0 + 1}));
  EXPECT_TRUE(numbers_are("running mean", norm.layer.running_mean(), {3}));
}

TEST(BatchNorm, ARepeatedForwardDoesNotMoveTheRunningOnes) {
  TwoAndOne norm(2);
  norm.forward({1, 3, 5, 7}, {1, 2, 1, 2}, {.recompute = true});
  EXPECT_TRUE(numbers_are("running mean", norm.layer.running_mean(), {0, 0}));
  EXPECT_TRUE(numbers_are("running variance", norm.layer.running_variance(), {1, 1}));
}

TEST(BatchNorm, GradientsAreSlopesInTrainingAndOutside) {
  for (const bool training : {true, false}) {
    TestWorld world;
    BatchNorm layer(world.rank, "norm", 3, {});
    ops::fill(layer.running_variance(), 1.7);
    check_layer_gradients(world, layer, {4, 3, 2, 3}, {.training = training});
  }
}

TEST(BatchNorm, SaysWhatItCannotNormalise) {
  TwoAndOne norm(2);
  EXPECT_EQ(message_of([&] {
              norm.forward({1, 2, 3}, {1, 3, 1, 1});
            }),
            "batch norm norm: x is (1, 3, 1, 1), expected 2 channels");
  EXPECT_EQ(message_of([&] {
              norm.forward({1, 2}, {1, 2, 1, 1});
            }),
            "batch norm norm: 1 values a channel, expected 2 or more: one has no spread");
  EXPECT_EQ(message_of([&] {
              norm.forward({}, {0, 2, 1, 1});
            }),
            "batch norm norm: 0 values a channel, expected 2 or more: one has no spread");
  EXPECT_EQ(message_of([&] {
              norm.forward({1, 2}, {1, 2});
            }),
            "batch norm: x is (1, 2), expected images (N, C, H, W)");
}

TEST(WholeImageNorm, NormalisesEachImageByItself) {
  TestWorld world;
  WholeImageNorm layer(world.rank, "norm", {2, 1, 2});
  ParameterStore store(world.device, {{"norm", layer.parameters()}},
                       {.value_dtype = DType::F64, .grad_dtype = DType::F64});
  store.initialize(1);
  Saved nothing = Saved::nothing();
  const Tensor x = from_doubles({1, 1, 3, 3, 0, 8, 0, 8}, {2, 2, 1, 2}, DType::F64, world.device);
  const double one = 1 / std::sqrt(1 + kEpsilon), four = 4 / std::sqrt(16 + kEpsilon);
  EXPECT_TRUE(numbers_are("y", layer.forward(x.share(), nothing, {}),
                          {-one, -one, one, one, -four, four, -four, four}));
  check_layer_gradients(world, layer, {3, 2, 1, 2});
}

}  // namespace
}  // namespace aisc
