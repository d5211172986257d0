// Layers whose weight is codes: what they compute, their bytes, and a GPT that generates with them.
#include "10_model_compression/more/quant_linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "common/nn/key_value_cache.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/compare.h"
#include "tests/support/message_of.h"
#include "tests/support/numbers.h"

namespace aisc {
namespace {

using ::testing::HasSubstr;

// Codes of all linear weights of a model, which it then has as their numbers.
CodesByName quantized_weights(TestGpt& gpt, const Quantization& how) {
  CodesByName codes;
  for (const std::string& name : linear_weights(gpt.config))
    for (const Parameter* p : gpt.store.parameters())
      if (p->name == name) {
        codes[name] = quantize(p->value(), how, p->value().device());
        dequantize(p->value(), codes[name]);
      }
  EXPECT_EQ(codes.size(), linear_weights(gpt.config).size()) << "names that the model has not";
  return codes;
}

CodesByName shared_codes(const CodesByName& codes) {
  CodesByName all;
  for (const auto& [name, its] : codes) all[name] = its.share();
  return all;
}

// The same model with codes, and all other parameters as `from` has them.
struct CodedGpt {
  CodedGpt(TestWorld& world, const TestGpt& from, const CodesByName& codes)
      : model(make_gpt(world.rank, from.config,
                       quantized_linears(gpt2_parts(), shared_codes(codes)))),
        store(world.device, make_units(model),
              {.value_dtype = from.config.dtype, .gradients = false}) {
    for (const Parameter* p : store.parameters())
      for (const Parameter* other : from.store.parameters())
        if (p->name == other->name) world.device.copy(p->value(), other->value());
  }
  Model model;
  ParameterStore store;
};

TEST(QuantLinear, ComputesWithTheNumbersOfItsCodes) {
  TestWorld world;
  for (const auto gelu : {Linear::Gelu::None, Linear::Gelu::Behind, Linear::Gelu::Before}) {
    const Codes codes = quantize(from_doubles({1, 127, 0, -1}, {2, 2}, DType::F32, world.device),
                                 {.per = Per::Tensor}, world.device);
    QuantLinear layer(world.rank, "layer", codes.share(), gelu);
    ASSERT_EQ(layer.parameters().size(), 1u) << "the bias alone";
    EXPECT_EQ(layer.parameters()[0]->name, "layer.bias");
    ParameterStore store(world.device, layer.units(), {.gradients = false});
    write_doubles(layer.parameters()[0]->value(), {5, 1});
    Saved saved;
    const Tensor x = from_doubles({1, 0.1}, {1, 1, 2}, DType::F32, world.device);
    const Tensor y = layer.forward(x.share(), saved, {});
    EXPECT_EQ(y.shape(), (Shape{1, 1, 2}));
    EXPECT_EQ(saved.size(), 0u) << "nothing is kept: there is no backward";
    // gelu(0.9) = 0.45 (1 + tanh(0.79788 (0.9 + 0.044715 0.729))) = 0.45 (1 + 0.6316)
    const bool behind = gelu == Linear::Gelu::Behind;
    EXPECT_TRUE(numbers_are("1 0.1 times 1 127 and 0 -1, and a bias 5 1", y,
                            {18.7, behind ? 0.73422 : 0.9}, {}, 1e-5));
  }
}

TEST(QuantLinear, HasNoBackward) {
  TestWorld world;
  QuantLinear layer(world.rank, "layer", make_codes({2, 2}, {}, world.device));
  Saved saved;
  EXPECT_EQ(message_of([&] {
              layer.backward(Tensor({1, 2}, DType::F32, world.device), saved, {});
            }),
            "layer: its weight is codes, which have no gradient: expected forward alone");
}

TEST(QuantLinear, IsTheModelWithTheNumbersOfTheCodes) {
  for (const DType dtype : {DType::F32, DType::F64, DType::BF16}) {
    TestWorld world;
    TestGpt gpt(world, odd_config(dtype), 1, dtype);
    for (const Quantization& how :
         {Quantization{}, Quantization{.bits = 4, .symmetry = Symmetry::Asymmetric, .group = 4}}) {
      const CodesByName codes = quantized_weights(gpt, how);
      CodedGpt coded(world, gpt, codes);
      const Tensor tokens = random_tokens(world.device, 2, 11, 13, 1);
      const Tensor expected = forward(gpt.model, tokens);
      // Where the model is F64 its products here are F32.
      const Tolerance tolerance = tolerance_of(dtype == DType::BF16 ? dtype : DType::F32, 8);
      EXPECT_TRUE(all_close(forward(coded.model, tokens), to_doubles(expected), tolerance))
          << name_of(dtype);
    }
  }
}

TEST(QuantLinear, GeneratesWithACache) {
  TestWorld world;
  TestGpt gpt(world, odd_config(DType::F32), 1, DType::F32);
  const CodesByName codes = quantized_weights(gpt, {.bits = 4});
  CodedGpt coded(world, gpt, codes);
  KeyValueCache plain_cache(11), cache(11);
  for (int step = 0; step < 5; ++step) {
    const Tensor token = random_tokens(world.device, 1, step == 0 ? 4 : 1, 13, 7);
    const Tensor expected = forward_cached(gpt.model, token, plain_cache);
    EXPECT_TRUE(all_close(forward_cached(coded.model, token, cache), to_doubles(expected),
                          tolerance_of(DType::F32, 8)))
        << "step " << step;
  }
}

TEST(QuantLinear, HoldsCodesInPlaceOfWeights) {
  TestWorld world;
  TestGpt gpt(world, odd_config(DType::F32), 1, DType::F32);
  const CodesByName codes = quantized_weights(gpt, {.per = Per::Channel});
  std::int64_t code_bytes = 0, weights = 0;
  for (const auto& [name, its] : codes) {
    code_bytes += its.bytes();
    weights += its.shape.count();
  }
  EXPECT_EQ(weights, 2 * 12 * 15 * 15);
  EXPECT_EQ(code_bytes, weights + 4 * 2 * (45 + 15 + 60 + 15)) << "a byte each, a scale a row";
  const std::int64_t before = world.device.ledger()[Purpose::Parameters].live_bytes;
  CodedGpt coded(world, gpt, codes);
  const std::int64_t held = world.device.ledger()[Purpose::Parameters].live_bytes - before;
  EXPECT_EQ(held, static_cast<std::int64_t>(coded.store.values().bytes()))
      << "the model shares the codes that are there";
  EXPECT_EQ(gpt.store.parameter_count() - coded.store.parameter_count(), weights);
}

TEST(QuantLinear, LayersWithoutCodesStay) {
  TestWorld world;
  TestGpt gpt(world, odd_config(DType::F32), 1, DType::F32);
  CodesByName codes = quantized_weights(gpt, {});
  codes.erase("blocks.1.mlp.fc.weight");
  CodedGpt coded(world, gpt, codes);
  EXPECT_EQ(gpt.store.parameter_count() - coded.store.parameter_count(),
            2 * 12 * 15 * 15 - 60 * 15);
  const Tensor tokens = random_tokens(world.device, 1, 11, 13, 1);
  EXPECT_TRUE(all_close(forward(coded.model, tokens), to_doubles(forward(gpt.model, tokens)),
                        tolerance_of(DType::F32, 8)));
}

TEST(QuantLinear, SaysWhatIsWrong) {
  TestWorld world;
  CpuDevice other;
  const auto made = [&](const Shape& shape, Device& device) {
    CodesByName codes;
    codes["blocks.0.mlp.fc.weight"] = make_codes(shape, {}, device);
    return message_of([&] {
      make_gpt(world.rank, odd_config(), quantized_linears(gpt2_parts(), std::move(codes)));
    });
  };
  EXPECT_EQ(made({15, 60}, world.device),
            "blocks.0.mlp.fc.weight: the codes are of a weight (15, 60), the model has (60, 15)");
  EXPECT_THAT(made({60, 15}, other), HasSubstr("blocks.0.mlp.fc: the codes of its weight are on "
                                               "another device (cpu)"));
}

}  // namespace
}  // namespace aisc
