// Neurons that go: the smaller MLP is the masked one.
#include "10_model_compression/more/prune_neurons.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/core/range.h"
#include "tests/support/drawn.h"
#include "tests/support/error_says.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

using ::testing::ElementsAre;

// 3 neurons, 2 columns.
MlpWeights small_mlp(CpuDevice& device) {
  return {from_doubles({3, 0, 1, 2, 0, 0}, {3, 2}, DType::F64, device),
          from_doubles({0, 2, 0}, {3}, DType::F64, device),
          from_doubles({0, 4, 1, 4, 0, 0}, {2, 3}, DType::F64, device)};
}

// What it computes of x (N, C), without the bias behind it. The sums are in the order of neurons:
// one that is 0 adds exactly 0.
std::vector<double> computed_by(const MlpWeights& mlp, const std::vector<double>& x) {
  const std::int64_t H = mlp.fc.shape()[0], C = mlp.fc.shape()[1];
  const std::vector<double> fc = to_doubles(mlp.fc), bias = to_doubles(mlp.fc_bias),
                            project = to_doubles(mlp.project);
  std::vector<double> y(x.size());
  for (std::int64_t n = 0; n < std::ssize(x) / C; ++n)
    for (std::int64_t h = 0; h < H; ++h) {
      double z = bias[index(h)];
      for (std::int64_t c = 0; c < C; ++c) z += x[index(n * C + c)] * fc[index(h * C + c)];
      z *= 0.5 * (1 + std::erf(z / std::sqrt(2.0)));  // GELU
      for (std::int64_t c = 0; c < C; ++c) y[index(n * C + c)] += z * project[index(c * H + h)];
    }
  return y;
}

TEST(PruneNeuronsGiven, NormsByHand) {
  CpuDevice device;
  EXPECT_THAT(neuron_norms(small_mlp(device)), ElementsAre(5, 5, 1))
      << "rows 3 0, 1 2 and 0 0, biases 0 2 0, columns 0 4, 4 0 and 1 0: of 9 + 16, 1 + 4 + 4 + 16 "
         "and 1 the roots";
}

TEST(PruneNeuronsGiven, TheLargestStayInTheirOrder) {
  EXPECT_THAT(largest_neurons({1, 5, 2, 4}, 2), ElementsAre(1, 3));
  EXPECT_THAT(largest_neurons({3, 3, 3}, 2), ElementsAre(0, 1));
  EXPECT_THAT(largest_neurons({1, 2}, 2), ElementsAre(0, 1));
}

TEST(PruneNeuronsGiven, PartsOfWeightsByHand) {
  CpuDevice device;
  const MlpWeights left = with_neurons(small_mlp(device), {0, 2});
  EXPECT_EQ(left.fc.shape(), (Shape{2, 2}));
  EXPECT_THAT(to_doubles(left.fc), ElementsAre(3, 0, 0, 0));
  EXPECT_THAT(to_doubles(left.fc_bias), ElementsAre(0, 0));
  EXPECT_EQ(left.project.shape(), (Shape{2, 2}));
  EXPECT_THAT(to_doubles(left.project), ElementsAre(0, 1, 4, 0));
}

TEST(PruneNeuronsGiven, TheSmallerMlpIsTheMaskedOne) {
  CpuDevice device;
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16}) {
    const std::int64_t H = drawn("neurons", 2, 30), C = drawn("columns", 1, 9);
    const MlpWeights mlp{random_tensor({H, C}, dtype, device, "fc"),
                         random_tensor({H}, dtype, device, "bias"),
                         random_tensor({C, H}, dtype, device, "project")};
    const std::vector<double> x = to_doubles(random_tensor({5, C}, DType::F64, device, "x"));
    for (const std::int64_t left : {std::int64_t{1}, (H + 1) / 2, H}) {
      const std::vector<std::int64_t> neurons = largest_neurons(neuron_norms(mlp), left);
      const MlpWeights masked{mlp.fc.clone(), mlp.fc_bias.clone(), mlp.project.clone()};
      mask_other_neurons(masked, neurons);
      EXPECT_EQ(computed_by(with_neurons(mlp, neurons), x), computed_by(masked, x))
          << name_of(dtype) << ", " << left << " of " << H << " neurons";
    }
  }
}

TEST(PruneNeuronsGiven, RefusesWhatDoesNotFit) {
  CpuDevice device;
  const MlpWeights mlp = small_mlp(device);
  const std::string expected = "expected (H, C), (H) and (C, H)";
  EXPECT_TRUE(error_says(
      [&] {
        neuron_norms({mlp.fc.share(), mlp.fc_bias.share(), mlp.fc.share()});
      },
      {"the weights of an MLP: found (3, 2), (3) and (3, 2), " + expected}));
  EXPECT_TRUE(error_says(
      [&] {
        with_neurons({mlp.fc.share(), mlp.fc.share(), mlp.project.share()}, {});
      },
      {"found (3, 2), (3, 2) and (2, 3), " + expected}));
  EXPECT_TRUE(error_says([&] { with_neurons(mlp, {0, 3}); }, {"neuron 3 of 3: expected 0 to 2"}));
  EXPECT_TRUE(error_says([&] { mask_other_neurons(mlp, {-1}); }, {"neuron -1 of 3"}));
  EXPECT_TRUE(error_says(
      [] {
        largest_neurons({1, 2}, 3);
      },
      {"3 neurons of 2: expected 1 to all of them"}));
  EXPECT_TRUE(error_says([] { largest_neurons({1, 2}, 0); }, {"0 neurons of 2"}));
}

}  // namespace
}  // namespace aisc
