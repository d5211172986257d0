// The residual branch that norms its sum: numbers by hand, its gradient, and what it is not.
#include "12_encoders/post_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "common/nn/block.h"
#include "common/nn/layer_norm.h"
#include "common/nn/linear.h"
#include "common/nn/sequence.h"
#include "tests/nn/layer_check.h"
#include "tests/support/numbers.h"

namespace aisc {
namespace {

// y = 3 x, in place where it may.
class Threefold final : public Layer {
 public:
  explicit Threefold(const Rank& rank) : Layer(rank, "threefold") {}
  Tensor forward(Tensor x, Saved& /*saved*/, const Pass& /*pass*/) const override {
    Tensor y = output_like(x);
    ops::scale(y, x, 3);
    return y;
  }
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override {
    return forward(std::move(dy), saved, pass);
  }
};

// Returns what it is given, as dropout does outside training.
class Through final : public Layer {
 public:
  explicit Through(const Rank& rank) : Layer(rank, "through") {}
  Tensor forward(Tensor x, Saved& /*saved*/, const Pass& /*pass*/) const override { return x; }
  Tensor backward(Tensor dy, Saved& /*saved*/, const Pass& /*pass*/) override { return dy; }
};

// x (1, 3, 5) and three times that are (4, 12, 20): of mean 12 and variance 128/3.
TEST(PostNormBranch, NormsTheSumOfBothPaths) {
  TestWorld world;
  PostNormBranch branch(world.rank, "branch", std::make_unique<Threefold>(world.rank),
                        std::make_unique<LayerNorm>(world.rank, "norm", 3, 128.0 / 3));
  ParameterStore store(world.device, {{"all", branch.parameters()}},
                       {.value_dtype = DType::F64, .grad_dtype = DType::F64});
  store.initialize(1);
  Saved saved;
  const Tensor x = from_doubles({1, 3, 5}, {1, 1, 3}, DType::F64, world.device);
  const double a = 8 / std::sqrt(256.0 / 3);  // epsilon doubles the variance
  EXPECT_TRUE(numbers_are("y", branch.forward(x.share(), saved, {}), {-a, 0, a},
                          {{"the norm came before the branch, and nothing behind the sum",
                            {1 - 3 * a, 3, 5 + 3 * a}}}));
}

TEST(PostNormBranch, HasTheGradientOfItsLoss) {
  TestWorld world;
  const auto norm = [&](const char* name) {
    return std::make_unique<LayerNorm>(world.rank, name, 5, 1e-12);
  };
  PostNormBranch one(world.rank, "one", std::make_unique<Linear>(world.rank, "linear", 5, 5),
                     norm("norm"));
  check_layer_gradients(world, one, {2, 3, 5}, {});
  PostNormBranch through(world.rank, "through", std::make_unique<Through>(world.rank),
                         norm("norm"));
  check_layer_gradients(world, through, {2, 3, 5}, {});
  const auto block = in_sequence(
      world.rank, "block",
      std::make_unique<PostNormBranch>(
          world.rank, "first", std::make_unique<Linear>(world.rank, "fc", 5, 5), norm("norm1")),
      std::make_unique<PostNormBranch>(world.rank, "second",
                                       std::make_unique<Linear>(world.rank, "project", 5, 5),
                                       norm("norm2")));
  check_layer_gradients(world, *block, {2, 3, 5}, {});
}

// The norm's own epsilon: of rows of one value everything is the bias, whatever it is.
TEST(LayerNormEpsilon, IsTheLayersOwn) {
  TestWorld world;
  for (const double epsilon : {1e-12, 1e-5, 0.5}) {
    LayerNorm norm(world.rank, "norm", 2, epsilon);
    ParameterStore store(world.device, {{"norm", norm.parameters()}},
                         {.value_dtype = DType::F64, .grad_dtype = DType::F64});
    store.initialize(1);
    Saved saved;
    const Tensor x = from_doubles({-0.5, 0.5}, {1, 2}, DType::F64, world.device);
    const double y = 0.5 / std::sqrt(0.25 + epsilon);
    EXPECT_TRUE(numbers_are("y", norm.forward(x.share(), saved, {}), {-y, y}));
  }
}

double rms(const Tensor& x) {
  double squares = 0;
  for (const double v : to_doubles(x)) squares += v * v;
  return std::sqrt(squares / static_cast<double>(x.count()));
}

// Behind twelve branches that add three times what they see: post-norm passes on numbers of one
// size, and pre-norm's residual stream grows with every branch.
TEST(PostNormBranch, KeepsTheSizeOfWhatItPassesOn) {
  TestWorld world;
  std::vector<std::unique_ptr<Layer>> post, pre;
  for (int i = 0; i < 12; ++i) {
    const auto norm = [&] { return std::make_unique<LayerNorm>(world.rank, "norm", 8); };
    const auto branch = [&] { return std::make_unique<Threefold>(world.rank); };
    post.push_back(std::make_unique<PostNormBranch>(world.rank, "branch", branch(), norm()));
    if (i % 2 == 0)
      pre.push_back(
          std::make_unique<Block>(world.rank, "block", norm(), branch(), norm(), branch()));
  }
  for (auto* layers : {&post, &pre}) {
    std::vector<Unit> units;
    for (const auto& layer : *layers)
      for (Parameter* p : layer->parameters()) units.push_back({"unit", {p}});
    ParameterStore store(world.device, units,
                         {.value_dtype = DType::F64, .grad_dtype = DType::F64});
    store.initialize(1);
    Saved saved;
    Tensor x = random_tensor({4, 8}, DType::F64, world.device, "x");
    for (const auto& layer : *layers) x = layer->forward(std::move(x), saved, {});
    if (layers == &post) {
      EXPECT_NEAR(rms(x), 1, 1e-4);
    } else {
      EXPECT_GT(rms(x), 30);
    }
  }
}

}  // namespace
}  // namespace aisc
