// A model with experts that starts as a dense one: the same function, the same gradients but for
// who has them, and from there on its own.
#include "08_moe/more/upcycle.h"

#include <gtest/gtest.h>

#include <cmath>

#include "08_moe/expert_parallel.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

GptConfig sparse_config(const std::string& router, double capacity = 0, bool shared = false) {
  GptConfig config = odd_config();
  config.experts = {.count = 4, .router = router, .capacity = capacity, .shared = shared};
  return config;
}

// One with experts, that starts as `dense`.
struct Upcycled {
  Upcycled(TestWorld& world, const GptConfig& sizes, const Model& dense)
      : model(make_gpt(world.rank, sizes, expert_parts(gpt2_parts(), nullptr))) {
    for (const Sync sync : {Sync::Data, Sync::ExpertData}) {
      stores.push_back(std::make_unique<ParameterStore>(
          world.device, make_units(model, sync),
          ParameterStore::Options{.value_dtype = DType::F64, .grad_dtype = DType::F64}));
      stores.back()->initialize(3);
      for (Parameter* p : stores.back()->parameters())  // a router that is sure of itself
        if (p->name.ends_with("router.weight"))
          world.device.copy(p->value(), random_tensor(p->shape, DType::F64, world.device, p->name));
    }
    upcycle_model(model, dense);
  }
  Model model;
  std::vector<std::unique_ptr<ParameterStore>> stores;
};

struct Upcycle : ::testing::Test {
  TestWorld world;
  TestGpt dense{world, odd_config()};
  Tensor tokens = random_tokens(world.device, 3, 11, 13, 1);
  Tensor targets = random_tokens(world.device, 3, 11, 13, 2);

  double loss_of(const Model& model) { return forward_backward(model, tokens, targets, {}, 0.1); }
};

constexpr double kUpcycleRounding = 1e-12;

TEST_F(Upcycle, IsTheDenseModelWhereGatesSumToOne) {
  const double loss = loss_of(dense.model);
  for (const char* router : {"top2", "noisy-top2", "bias"}) {
    const Upcycled sparse(world, sparse_config(router), dense.model);
    EXPECT_NEAR(loss_of(sparse.model) / loss, 1, kUpcycleRounding) << router;
  }
}

// One gate below 1, or tokens without room: another function.
TEST_F(Upcycle, IsNotWhereTheyDoNotOrTokensAreDropped) {
  const double loss = loss_of(dense.model);
  const auto off = [&](const GptConfig& config) {
    return std::abs(loss_of(Upcycled(world, config, dense.model).model) / loss - 1);
  };
  constexpr double kFarFromRounding = 1e6 * kUpcycleRounding;
  EXPECT_GT(off(sparse_config("switch")), kFarFromRounding);
  EXPECT_GT(off(sparse_config("top2", 0.5)), kFarFromRounding);
}

// What the experts of a block learn together is what the MLP learns, and the router learns nothing
// yet: whom it chooses makes no difference.
TEST_F(Upcycle, ExpertsShareTheGradientOfTheMlp) {
  loss_of(dense.model);
  const Upcycled sparse(world, sparse_config("top2"), dense.model);
  loss_of(sparse.model);
  int experts = 0;
  for (const auto& store : sparse.stores) {
    store->complete_grads();
    for (const Parameter* p : store->parameters()) {
      const std::vector<double> gradient = to_doubles(p->grad());
      const std::optional<Parameter> wanted = dense_parameter(*p);
      std::vector<double> expected(gradient.size());
      if (wanted)
        for (const Parameter* d : dense.store.parameters())
          if (d->name == wanted->name) expected = to_doubles(d->grad());
      std::vector<double> sum(expected.size());
      for (std::size_t i = 0; i < gradient.size(); ++i) sum[i % sum.size()] += gradient[i];
      experts += sum.size() < gradient.size();
      for (std::size_t i = 0; i < sum.size(); ++i)
        ASSERT_NEAR(sum[i], expected[i], kUpcycleRounding) << p->name << " " << i;
    }
  }
  EXPECT_EQ(experts, 4) << "weights and biases of the second block";
}

TEST_F(Upcycle, SaysWhatDoesNotFit) {
  EXPECT_TRUE(error_says([&] { Upcycled(world, sparse_config("top2", 0, true), dense.model); },
                         {"blocks.1.mlp.shared.fc.weight: a dense model's MLP would count twice"}));
  GptConfig longer = sparse_config("top2");
  longer.context = 12;
  EXPECT_TRUE(error_says([&] { Upcycled(world, longer, dense.model); },
                         {"upcycle: wpe.weight has shape (11, 15), expected (12, 15)"}));
  longer = sparse_config("top2");
  longer.layers = 3;
  EXPECT_TRUE(error_says([&] { Upcycled(world, longer, dense.model); },
                         {"upcycle: the dense model has no blocks.2."}));
}

// By hand: 2 experts of a (1, 2) matrix, and names.
TEST(UpcycledParameter, IsCopiesOfTheDenseOne) {
  CpuDevice device;
  const Parameter p = split_parameter("blocks.3.mlp.experts.fc.weight", {2, 1, 2}, 0, 1, 2,
                                      Init::normal(0.02), true);
  const Tensor whole = Tensor::zeros({2, 1, 2}, DType::F64, device);
  EXPECT_TRUE(upcycle(p, whole, [](const Parameter& dense, View to) {
    EXPECT_EQ(dense.name, "blocks.3.mlp.fc.weight");
    EXPECT_EQ(dense.global_shape, (Shape{1, 2}));
    write_doubles(to, {5, 6});
  }));
  EXPECT_EQ(to_doubles(whole), (std::vector<double>{5, 6, 5, 6}));
  const Parameter router = whole_parameter("blocks.3.mlp.router.weight", {2, 2}, {}, true);
  EXPECT_FALSE(upcycle(router, whole, [](const Parameter&, View) { FAIL(); }));
}

}  // namespace
}  // namespace aisc
