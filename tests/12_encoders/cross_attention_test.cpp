// Attention of a text to another one: numbers by hand, the formulas term by term, gradients through
// both inputs, and padding that nobody sees.
#include "12_encoders/cross_attention.h"

#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "common/nn/linear.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/compare.h"
#include "tests/support/drawn.h"
#include "tests/support/error_says.h"
#include "tests/support/gradient_check.h"
#include "tests/support/numbers.h"

namespace aisc {
namespace {

struct TestCross {
  TestCross(TestWorld& world, std::int64_t C, std::int64_t heads, const char* name = "cross")
      : layer(world.rank, name, heads,
              std::make_unique<Linear>(world.rank, std::string(name) + ".q", C, C),
              std::make_unique<Linear>(world.rank, std::string(name) + ".kv", C, 2 * C),
              std::make_unique<Linear>(world.rank, std::string(name) + ".project", C, C)),
        store(world.device, {{name, layer.parameters()}},
              {.value_dtype = DType::F64, .grad_dtype = DType::F64}) {
    for (const Parameter* p : store.parameters())
      world.device.copy(p->value(),
                        random_tensor(p->shape, DType::F64, world.device, p->name, 0.5));
  }

  CrossAttention layer;
  ParameterStore store;
};

// One token looks at two, in one column: q = 0, so that it sees both alike, and all products are
// with 1. Values 1 and 3 give 2. With dy = 6 each value gets 3; dq is 6, and the keys get q times
// something, 0.
TEST(CrossAttention, AddsToTheGradientsThatOthersHaveLeft) {
  TestWorld world;
  TestCross cross(world, 1, 1);
  for (const Parameter* p : cross.store.parameters())
    ops::fill(p->value(), p->name.ends_with("weight") ? 1 : 0);
  SideInput side{.value = from_doubles({1, 3}, {1, 2, 1}, DType::F64, world.device)};
  const Pass pass{.side = &side};
  const auto run = [&] {
    Saved saved;
    const Tensor y =
        cross.layer.forward(Tensor::zeros({1, 1, 1}, DType::F64, world.device), saved, pass);
    EXPECT_TRUE(numbers_are("the output", y, {2}));
    const Tensor dx =
        cross.layer.backward(from_doubles({6}, {1, 1, 1}, DType::F64, world.device), saved, pass);
    EXPECT_TRUE(
        numbers_are("dx", dx, {6}, {{"the gradient of the encoder's output came back", {3}}}));
    EXPECT_EQ(saved.size(), 0u) << "backward pops what forward has pushed";
  };
  run();
  ASSERT_TRUE(side.grad) << "nobody has a gradient for the encoder's output";
  EXPECT_TRUE(numbers_are("the encoder's gradient of one block", side.grad, {3, 3}));
  side.grad = from_doubles({10, 20}, {1, 2, 1}, DType::F64, world.device);
  run();
  EXPECT_TRUE(numbers_are("behind another block, which left 10 and 20: the encoder's gradient",
                          side.grad, {13, 23},
                          {{"it was overwritten, and is this block's alone", {3, 3}},
                           {"nothing was added to it", {10, 20}}}));
}

// The formulas of the header, by loops. Weights (out, in); head h of kv: D columns of keys, then D
// of values.
std::vector<double> by_loops(const TestCross& cross, const Tensor& x, const Tensor& value,
                             const std::vector<std::int64_t>& lengths, std::int64_t H) {
  const std::int64_t B = x.shape()[0], T = x.shape()[1], C = x.shape()[2], S = value.shape()[1];
  const std::int64_t D = C / H;
  const std::vector<Parameter*> p = cross.store.parameters();
  const auto product = [](const std::vector<double>& rows, const Parameter& weight,
                          const Parameter& bias) {
    const std::int64_t out = weight.shape[0], in = weight.shape[1], N = std::ssize(rows) / in;
    const std::vector<double> w = to_doubles(weight.value()), b = to_doubles(bias.value());
    std::vector<double> y(std::size_t(N * out));
    for (std::int64_t n = 0; n < N; ++n)
      for (std::int64_t o = 0; o < out; ++o) {
        double sum = b[std::size_t(o)];
        for (std::int64_t i = 0; i < in; ++i)
          sum += rows[std::size_t(n * in + i)] * w[std::size_t(o * in + i)];
        y[std::size_t(n * out + o)] = sum;
      }
    return y;
  };
  const std::vector<double> q = product(to_doubles(x), *p[0], *p[1]);
  const std::vector<double> kv = product(to_doubles(value), *p[2], *p[3]);
  std::vector<double> out(std::size_t(B * T * C));
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t t = 0; t < T; ++t)
      for (std::int64_t h = 0; h < H; ++h) {
        std::vector<double> weights;
        double sum = 0;
        for (std::int64_t s = 0; s < lengths[std::size_t(b)]; ++s) {
          double score = 0;
          for (std::int64_t d = 0; d < D; ++d)
            score += q[std::size_t((b * T + t) * C + h * D + d)] *
                     kv[std::size_t((b * S + s) * 2 * C + h * 2 * D + d)];
          weights.push_back(std::exp(score / std::sqrt(double(D))));
          sum += weights.back();
        }
        for (std::int64_t s = 0; s < std::ssize(weights); ++s)
          for (std::int64_t d = 0; d < D; ++d)
            out[std::size_t((b * T + t) * C + h * D + d)] +=
                weights[std::size_t(s)] / sum *
                kv[std::size_t((b * S + s) * 2 * C + (h * 2 + 1) * D + d)];
      }
  return product(out, *p[4], *p[5]);
}

TEST(CrossAttentionGiven, IsTheFormulasTermByTerm) {
  TestWorld world;
  const std::array<std::array<std::int64_t, 5>, 4> sizes{
      {{1, 1, 1, 1, 2}, {2, 3, 5, 2, 3}, {3, 7, 2, 3, 1}, {1, 70, 65, 1, 4}}};  // B T S H D
  for (const auto& [B, T, S, H, D] : sizes) {
    TestCross cross(world, H * D, H);
    const Tensor x = random_tensor({B, T, H * D}, DType::F64, world.device, "x");
    const Tensor before = x.clone();
    SideInput side{.value = random_tensor({B, S, H * D}, DType::F64, world.device, "value")};
    const Tensor value = side.value.clone();
    std::vector<std::int64_t> all, some;
    std::vector<std::int32_t> ids;
    for (std::int64_t b = 0; b < B; ++b) {
      all.push_back(S);
      some.push_back(1 + b * 3 % S);
      ids.push_back(static_cast<std::int32_t>(some.back()));
    }
    const Tensor lengths = ids_tensor(ids, world.device);
    Saved nothing = Saved::nothing();
    const Tensor whole = cross.layer.forward(x.share(), nothing, {.side = &side});
    const Tensor padded =
        cross.layer.forward(x.share(), nothing, {.key_lengths = lengths, .side = &side});
    EXPECT_TRUE(all_close(whole, by_loops(cross, x, value, all, H), tolerance_of(DType::F64)));
    EXPECT_TRUE(all_close(padded, by_loops(cross, x, value, some, H), tolerance_of(DType::F64)));
    EXPECT_TRUE(same_bits(x, before)) << "an x that others hold was changed";
    EXPECT_TRUE(same_bits(side.value, value)) << "the encoder's output was changed";
  }
}

// Two layers that look at the same value, one behind the other: what the side input's gradient is a
// sum of.
TEST(CrossAttention, HasTheGradientsOfItsLossThroughBothInputs) {
  TestWorld world;
  const std::int64_t B = 2, C = 6, T = drawn("decoder tokens", 2, 6);
  const std::int64_t S = drawn("source tokens", 3, 7);
  TestCross first(world, C, 3, "first"), second(world, C, 2, "second");
  const Tensor x = random_tensor({B, T, C}, DType::F64, world.device, "x");
  const Tensor value = random_tensor({B, S, C}, DType::F64, world.device, "value");
  const Tensor weights = random_tensor({B, T, C}, DType::F64, world.device, "weights");
  const Tensor lengths = ids_tensor({static_cast<std::int32_t>(S), 2}, world.device);
  for (const bool padded : {false, true}) {
    SideInput side{.value = value.share()};
    Pass pass{.side = &side};
    if (padded) pass.key_lengths = lengths;
    const auto through = [&](Saved& a, Saved& b) {
      return second.layer.forward(first.layer.forward(x.share(), a, pass), b, pass);
    };
    const auto loss = [&] {
      Saved nothing = Saved::nothing();
      return dot(through(nothing, nothing), weights);
    };
    Saved a, b;
    through(a, b);
    first.store.clear_grads();
    second.store.clear_grads();
    const Tensor dy = weights.clone();
    const Tensor dx = first.layer.backward(second.layer.backward(dy.share(), b, pass), a, pass);
    EXPECT_EQ(a.size() + b.size(), 0u) << "backward pops what forward has pushed";
    EXPECT_TRUE(same_bits(dy, weights)) << "a dy that others hold was changed";
    EXPECT_TRUE(check_gradient(loss, x, dx)) << "dx";
    EXPECT_TRUE(check_gradient(loss, value, side.grad))
        << "the encoder's output, at which both layers look: their gradients add up";
    for (const TestCross* cross : {&first, &second})
      for (const Parameter* p : cross->store.parameters())
        EXPECT_TRUE(check_gradient(loss, p->value(), p->grad())) << p->name;
  }
}

// Other numbers in the source's padding: all that is computed of tokens has the same bits.
TEST(CrossAttention, SeesNoPadding) {
  TestWorld world;
  const std::int64_t B = 2, T = 3, S = 7, C = 4;
  TestCross cross(world, C, 2);
  const std::vector<std::int64_t> lengths{4, 6};
  const Tensor ids = ids_tensor({4, 6}, world.device);
  const Tensor x = random_tensor({B, T, C}, DType::F64, world.device, "x");
  const Tensor dy = random_tensor({B, T, C}, DType::F64, world.device, "dy");
  const Tensor value = random_tensor({B, S, C}, DType::F64, world.device, "value");
  const Tensor changed = value.clone();
  for (std::int64_t b = 0; b < B; ++b) {
    const std::int64_t n = lengths[std::size_t(b)];
    ops::fill(changed.view().flat((b * S + n) * C, (S - n) * C), -5);
  }
  std::vector<Tensor> found;  // y, dx, dvalue of each
  for (const Tensor* source : {&value, &changed}) {
    SideInput side{.value = source->share()};
    const Pass pass{.key_lengths = ids, .side = &side};
    Saved saved;
    found.push_back(cross.layer.forward(x.share(), saved, pass));
    found.push_back(cross.layer.backward(dy.share(), saved, pass));
    found.push_back(std::move(side.grad));
  }
  EXPECT_TRUE(same_bits(found[0], found[3])) << "y depends on what stands in the padding";
  EXPECT_TRUE(same_bits(found[1], found[4])) << "dx depends on what stands in the padding";
  EXPECT_TRUE(same_bits(found[2], found[5])) << "dvalue depends on what stands in the padding";
  const std::vector<double> dvalue = to_doubles(found[2]);
  for (std::int64_t i = 0; i < B * S * C; ++i) {
    if (i / C % S >= lengths[std::size_t(i / (S * C))])
      EXPECT_EQ(dvalue[std::size_t(i)], 0) << "padding has a gradient, at element " << i;
    else
      EXPECT_NE(dvalue[std::size_t(i)], 0) << "a token has none, at element " << i;
  }
}

TEST(CrossAttentionGiven, SaysWhatItCannotLookAt) {
  TestWorld world;
  TestCross cross(world, 2, 1);
  const auto forward = [&](const Pass& pass) {
    return [&cross, &world, pass] {
      Saved saved;
      cross.layer.forward(Tensor::zeros({1, 1, 2}, DType::F64, world.device), saved, pass);
    };
  };
  SideInput empty;
  EXPECT_TRUE(error_says(forward({}), {"decoder: cross", "without decoder tokens"}));
  EXPECT_TRUE(error_says(forward({.side = &empty}), {"decoder: cross", "no encoder's output"}));
}

}  // namespace
}  // namespace aisc
