// Attention of all tokens to all: the formulas with stored scores, their gradient, and padding that
// nobody sees.
#include <gtest/gtest.h>

#include <array>

#include "common/comm/launch.h"
#include "common/nn/encoder_core.h"
#include "common/nn/key_value_cache.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/nn/stored_core.h"
#include "tests/support/compare.h"
#include "tests/support/error_says.h"
#include "tests/support/gradient_check.h"

namespace aisc {
namespace {

struct EncoderRun {
  Tensor out, dqkv;
};
EncoderRun run_encoder(Layer& core, const Tensor& qkv, const Tensor& dout, const Pass& pass) {
  Saved saved;
  EncoderRun found;
  found.out = core.forward(qkv.clone(), saved, pass);
  found.dqkv = core.backward(dout.clone(), saved, pass);
  EXPECT_EQ(saved.size(), 0u) << "backward pops what forward has pushed";
  return found;
}

TEST(EncoderCore, IsTheFormulasTermByTerm) {
  TestWorld world;
  const std::array<std::array<std::int64_t, 4>, 4> sizes{
      {{1, 1, 1, 2}, {2, 5, 3, 4}, {1, 70, 2, 3}, {3, 7, 1, 8}}};
  for (const auto& [B, T, H, D] : sizes) {
    const Tensor qkv = random_tensor({B, T, H * 3 * D}, DType::F64, world.device, "qkv");
    const Tensor dout = random_tensor({B, T, H * D}, DType::F64, world.device, "dout");
    std::vector<std::int32_t> some;
    for (std::int64_t b = 0; b < B; ++b) some.push_back(static_cast<std::int32_t>(1 + b * 3 % T));
    const Tensor lengths = ids_tensor(some, world.device);
    for (const Pass& pass : {Pass{}, Pass{.key_lengths = lengths}}) {
      StoredCore oracle(world.rank, "oracle", H, false);
      EncoderCore core(world.rank, "core", H);
      const EncoderRun one = run_encoder(oracle, qkv, dout, pass);
      const EncoderRun found = run_encoder(core, qkv, dout, pass);
      EXPECT_TRUE(all_close(found.out, to_doubles(one.out), tolerance_of(DType::F64)));
      EXPECT_TRUE(all_close(found.dqkv, to_doubles(one.dqkv), tolerance_of(DType::F64, 10)));
    }
  }
}

TEST(EncoderCore, HasTheGradientOfItsLoss) {
  TestWorld world;
  const Tensor lengths = ids_tensor({5, 3}, world.device);
  const Tensor qkv = random_tensor({2, 5, 18}, DType::F64, world.device, "qkv");
  const Tensor weights = random_tensor({2, 5, 6}, DType::F64, world.device, "weights");
  for (const Pass& pass : {Pass{}, Pass{.key_lengths = lengths}}) {
    EncoderCore core(world.rank, "core", 3);
    const auto loss = [&] {
      Saved nothing = Saved::nothing();
      return dot(core.forward(qkv.clone(), nothing, pass), weights);
    };
    EXPECT_TRUE(check_gradient(loss, qkv, run_encoder(core, qkv, weights, pass).dqkv));
  }
}

// Other numbers in the padding, and more of it: the tokens before it have the same bits.
TEST(EncoderCore, SeesNoPadding) {
  TestWorld world;
  const std::int64_t T = 9, length = 4, C = 6;
  const Tensor lengths = ids_tensor({length}, world.device);
  const Pass pass{.key_lengths = lengths};
  const Tensor qkv = random_tensor({1, T, 3 * C}, DType::F32, world.device, "qkv");
  const Tensor changed = qkv.clone();
  ops::fill(changed.view().flat(length * 3 * C, (T - length) * 3 * C), 7);
  EncoderCore core(world.rank, "core", 2);
  const auto first_rows = [&](const Tensor& x, std::int64_t tokens) {
    Tensor own({1, tokens, 3 * C}, DType::F32, world.device);
    world.device.copy(own, x.view().flat(0, own.count()).reshaped(own.shape()));
    Saved nothing = Saved::nothing();
    std::vector<double> out = to_doubles(core.forward(std::move(own), nothing, pass));
    out.resize(static_cast<std::size_t>(length * C));
    return out;
  };
  const std::vector<double> found = first_rows(qkv, T);
  EXPECT_EQ(first_rows(changed, T), found) << "padding of other numbers";
  EXPECT_EQ(first_rows(qkv, length), found) << "no padding at all";
}

// What a token sees later changes what it is: of a causal core it does not.
TEST(EncoderCore, SeesLaterTokens) {
  TestWorld world;
  const Tensor qkv = random_tensor({1, 5, 12}, DType::F64, world.device, "qkv");
  const Tensor changed = qkv.clone();
  ops::fill(changed.view().flat(4 * 12, 12), 2);
  for (const Sees sees : {Sees::Earlier, Sees::All}) {
    const auto core = attention_core(world.rank, "core", 2, sees);
    const auto first = [&](const Tensor& x) {
      Saved nothing = Saved::nothing();
      return to_doubles(core->forward(x.clone(), nothing, {}))[0];
    };
    EXPECT_EQ(first(qkv) != first(changed), sees == Sees::All);
  }
}

TEST(EncoderCore, GeneratesNothing) {
  TestWorld world;
  KeyValueCache cache(8);
  EncoderCore core(world.rank, "blocks.0.attention", 1);
  Saved nothing = Saved::nothing();
  EXPECT_TRUE(error_says(
      [&] {
        core.forward(Tensor::zeros({1, 1, 6}, DType::F64, world.device), nothing,
                     {.training = false, .cache = &cache});
      },
      {"blocks.0.attention", "an encoder's tokens see later ones"}));
}

}  // namespace
}  // namespace aisc
