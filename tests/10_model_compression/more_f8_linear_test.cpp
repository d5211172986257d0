// A linear layer on codes: against F8Layer on the host, which multiplies rounded numbers.
#include "10_model_compression/more/f8_linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "common/nn/sequence.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

// What an MLP of two linear layers gives, whose GELU lies between their products.
struct TwoLinears {
  TwoLinears(TestWorld& w, const F8Options& options, bool codes, std::int64_t in = 32,
             std::int64_t hidden = 48)
      : world(w) {
    const auto linear = [&](const char* name, std::int64_t from, std::int64_t to,
                            Linear::Gelu gelu) -> std::unique_ptr<Layer> {
      auto plain = std::make_unique<Linear>(world.rank, name, from, to, 0.2, gelu);
      if (codes) return std::make_unique<F8Linear>(world.rank, std::move(plain), gelu, options);
      return std::make_unique<F8Layer>(
          world.rank, std::move(plain), options,
          F8Layer::Operands{.weights = [](const Parameter& p) { return p.shape.rank() == 2; }});
    };
    model.layers =
        listed(in_sequence(world.rank, "mlp", linear("fc", in, hidden, Linear::Gelu::Behind),
                           linear("project", hidden, in, Linear::Gelu::Before)));
    store = std::make_unique<ParameterStore>(
        world.device, make_units(model),
        ParameterStore::Options{.value_dtype = DType::BF16, .grad_dtype = DType::F32});
    for (const Parameter* p : store->parameters())
      world.device.copy(p->value(),
                        random_tensor(p->shape, DType::BF16, world.device, p->name, 0.3));
    saved.resize(1);
  }
  Tensor forward(std::int64_t rows, const Pass& pass = {}) {
    return forward_layers(model, random_tensor({rows / 8, 8, 32}, DType::BF16, world.device, "x"),
                          saved, pass);
  }
  Tensor backward(std::int64_t rows, const Pass& pass = {}) {
    dy = random_tensor({rows / 8, 8, 32}, DType::BF16, world.device, "dy", 1e-5);
    return backward_layers(model, dy.share(), saved, pass);
  }

  TestWorld& world;
  Model model;
  std::unique_ptr<ParameterStore> store;
  std::vector<Saved> saved;
  Tensor dy;
};

// Root mean squares: of what differs, to what is expected.
double distance(ConstView found, ConstView expected) {
  const std::vector<double> a = to_doubles(found), b = to_doubles(expected);
  EXPECT_EQ(a.size(), b.size());
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}
// Sums of the same terms in another order, then rounded to BF16; here and there a number of those
// between the layers is rounded to the next one of F8, which is 1/16 to 1/8 away.
constexpr double kOtherOrder = 0.01;

class F8LinearOnCodes : public PerWorld {};

TEST_P(F8LinearOnCodes, IsF8LayersLinear) {
  TestWorld host, world(GetParam());
  for (const F8Scale scale : {F8Scale::Tensor, F8Scale::Delayed})
    for (const std::int64_t rows : {16, 24}) {  // 24: a GPU has no such product of codes
      SCOPED_TRACE(testing::Message() << rows << " rows, " << (scale == F8Scale::Tensor));
      TwoLinears expected(host, {.scale = scale}, false), found(world, {.scale = scale}, true);
      for (std::uint64_t step = 0; step < 2; ++step) {
        const Pass pass{.step = step};
        EXPECT_LT(distance(found.forward(rows, pass), expected.forward(rows, pass)), kOtherOrder);
        EXPECT_LT(distance(found.backward(rows, pass), expected.backward(rows, pass)), kOtherOrder);
      }
      for (const std::size_t weight : {0, 2})
        EXPECT_LT(distance(found.store->parameters()[weight]->grad(),
                           expected.store->parameters()[weight]->grad()),
                  kOtherOrder)
            << found.store->parameters()[weight]->name;
    }
}

TEST_P(F8LinearOnCodes, SumsTheBiasGradientOfLongNumbers) {
  TestWorld world(GetParam());
  TwoLinears layers(world, {.scale = F8Scale::Tensor}, true);
  layers.forward(16);
  layers.backward(16);
  const Tensor sums({32}, DType::F32, world.device);
  ops::add_bias_backward(sums, as_rows(layers.dy), ops::Into::Overwrite);
  EXPECT_TRUE(same_bits(sums, layers.store->parameters()[3]->grad()));
}

TEST_P(F8LinearOnCodes, KeepsAByteANumber) {
  TestWorld world(GetParam());
  TwoLinears layers(world, {.scale = F8Scale::Tensor}, true);
  layers.forward(16);
  const std::int64_t scale = 4;
  EXPECT_EQ(layers.saved[0].bytes(), 16 * 32 + scale + 16 * 48 * 2 + 16 * 48 + scale)
      << "of both layers, and between them the GELU's input";
}

TEST_P(F8LinearOnCodes, DeferredGradientsHaveTheSameBits) {
  TestWorld world(GetParam());
  const F8Options options{.scale = F8Scale::Tensor};
  TwoLinears now(world, options, true), later(world, options, true);
  now.forward(16);
  now.backward(16);
  DeferredGrads deferred;
  later.forward(16);
  later.backward(16, {.deferred = &deferred});
  EXPECT_EQ(deferred.size(), 2u);
  deferred.run_all();
  EXPECT_TRUE(same_bits(now.store->grads(), later.store->grads()));
}

// Plain linear layers of a GPU, one scale for a tensor.
TEST_P(F8LinearOnCodes, TakesThePlaceOfPlainLinearsOfAGpu) {
  TestWorld world(GetParam());
  const Linear plain(world.rank, "plain", 2, 2);
  const bool gpu = GetParam() == DeviceKind::Cuda;
  EXPECT_EQ(F8Linear::replaces(world.rank, plain, {.scale = F8Scale::Tensor}), gpu);
  EXPECT_EQ(F8Linear::replaces(world.rank, plain, {.scale = F8Scale::Delayed}), gpu);
  EXPECT_FALSE(F8Linear::replaces(world.rank, plain, {.scale = F8Scale::Block}));
  const Sequence other(world.rank, "other", {});
  EXPECT_FALSE(F8Linear::replaces(world.rank, other, {.scale = F8Scale::Tensor}));
}

INSTANTIATE_TEST_SUITE_P(Devices, F8LinearOnCodes, ::testing::ValuesIn(device_kinds()),
                         device_kind_test_name);

}  // namespace
}  // namespace aisc
