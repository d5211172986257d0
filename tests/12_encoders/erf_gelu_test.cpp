// BERT's GELU as a layer: its values, its gradient by central differences, what it keeps.
#include "12_encoders/erf_gelu.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/ops/ops.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/compare.h"
#include "tests/support/gradient_check.h"

namespace aisc {
namespace {

TEST(ErfGelu, IsItsInputTimesTheProbabilityOfLess) {
  TestWorld world;
  const ErfGelu layer(world.rank, "gelu");
  Saved nothing = Saved::nothing();
  const Tensor y =
      layer.forward(from_doubles({0, 1, -1, 2}, {2, 2}, DType::F64, world.device), nothing, {});
  EXPECT_EQ(y.shape(), (Shape{2, 2}));
  EXPECT_TRUE(all_close(y, {0, 0.8413447461, -0.1586552539, 1.9544997361}, {1e-9}))
      << "found gelu of 0, 1, -1 and 2, expected x Phi(x) of the normal distribution: 0.8412 at 1 "
         "would be GPT-2's tanh form";
}

TEST(ErfGelu, GradientMatchesCentralDifferences) {
  TestWorld world;
  ErfGelu layer(world.rank, "gelu");
  const Tensor x = random_tensor({2, 3, 5}, DType::F64, world.device, "x", 2);
  const Tensor weights = random_tensor({2, 3, 5}, DType::F64, world.device, "weights");
  const auto loss = [&] {
    Saved nothing = Saved::nothing();
    return dot(layer.forward(x.clone(), nothing, {}), weights);
  };
  Saved saved;
  layer.forward(x.clone(), saved, {});
  const Tensor dy = weights.clone();
  const Tensor dx = layer.backward(dy.share(), saved, {});
  EXPECT_TRUE(check_gradient(loss, x, dx));
  EXPECT_EQ(saved.size(), 0u) << "backward pops what forward pushed";
  EXPECT_TRUE(same_bits(dy, weights)) << "backward changed a dy that others hold";
}

TEST(ErfGelu, KeepsItsInputAndLeavesItAlone) {
  TestWorld world;
  const ErfGelu layer(world.rank, "gelu");
  const Tensor x = random_tensor({3, 4}, DType::BF16, world.device, "x"), before = x.clone();
  Saved saved;
  const Tensor y = layer.forward(x.share(), saved, {});
  EXPECT_EQ(saved.bytes(), 2 * 12);
  EXPECT_TRUE(same_bits(x, before));
  EXPECT_EQ(y.dtype(), DType::BF16);
}

TEST(ErfGelu, IsNearGpt2sFormButNotIt) {
  TestWorld world;
  const ErfGelu layer(world.rank, "gelu");
  const Tensor x = random_tensor({1000}, DType::F64, world.device, "x", 2);
  Tensor tanh_form(x.shape(), DType::F64, world.device);
  ops::gelu(tanh_form, x);
  Saved nothing = Saved::nothing();
  const std::vector<double> a = to_doubles(layer.forward(x.clone(), nothing, {}));
  const std::vector<double> b = to_doubles(tanh_form);
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  EXPECT_LT(most, 5e-4) << "the two forms differ by less than 0.0005 everywhere";
  EXPECT_GT(most, 1e-4) << "this is the tanh form, GPT-2's: BERT's has erf";
}

}  // namespace
}  // namespace aisc
