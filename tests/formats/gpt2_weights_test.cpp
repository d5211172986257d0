// Hugging Face's files give Hugging Face's logits, in every type, and the order of the elements is
// right in both directions. tests/fixtures/make_huggingface_fixture made the files.
#include <gtest/gtest.h>

#include "formats/gpt2_weights.h"
#include "tests/formats/gpt2_fixture.h"
#include "tests/support/compare.h"
#include "tests/support/error_says.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

// Both sides compute in F64, in another order, from the same stored weights: logits of size 1 agree
// to 1e-14.
constexpr Tolerance kLogits{1e-9};

// The logits (B T, V) of the fixture's tokens, the first T of each row.
std::vector<double> logits_of(const FileGpt& gpt, std::int64_t T) {
  const Safetensors file(fixture("huggingface_gpt2/expected.safetensors"));
  Device& device = gpt.store.values().device();
  const Tensor all = tensor_of(file, "tokens", device, DType::I32);
  Tensor tokens({all.shape()[0], T}, DType::I32, device);
  for (std::int64_t b = 0; b < all.shape()[0]; ++b)
    device.copy(tokens.rows(b, b + 1).reshaped({T}), all.view().flat(b * all.shape()[1], T));
  const Tensor logits = forward(gpt.model, tokens);  // (B, T, table_rows)
  const auto padded = to_doubles(logits);
  const auto rows = static_cast<std::size_t>(gpt.config.table_rows());
  std::vector<double> values;
  for (std::size_t i = 0; i < padded.size(); ++i)
    if (i % rows < static_cast<std::size_t>(gpt.config.vocabulary)) values.push_back(padded[i]);
  return values;
}

std::vector<double> expected_logits(const std::string& name, std::int64_t T) {
  const Safetensors file(fixture("huggingface_gpt2/expected.safetensors"));
  CpuDevice device;
  const Tensor all = tensor_of(file, name, device);  // (B, 16, V)
  const std::int64_t B = all.shape()[0], row = all.shape()[1] * all.shape()[2];
  std::vector<double> values;
  for (std::int64_t b = 0; b < B; ++b)
    for (const double x : to_doubles(all.view().flat(b * row, T * all.shape()[2])))
      values.push_back(x);
  return values;
}

::testing::AssertionResult close(const std::vector<double>& actual,
                                 const std::vector<double>& expected, Tolerance tolerance) {
  CpuDevice device;
  const Shape shape{static_cast<std::int64_t>(actual.size())};
  return all_close(from_doubles(actual, shape, DType::F64, device), expected, tolerance);
}

TEST(Gpt2Weights, GiveHuggingFacesLogits) {
  TestWorld world;
  const FileGpt gpt(world, hugging_face(), DType::F64);
  EXPECT_EQ(gpt.config.layers, 2);
  EXPECT_EQ(gpt.config.heads, 4);  // in config.json only
  EXPECT_EQ(gpt.config.width, 20);
  EXPECT_EQ(gpt.config.context, 16);
  EXPECT_EQ(gpt.config.vocabulary, 45);
  EXPECT_TRUE(close(logits_of(gpt, 16), expected_logits("logits", 16), kLogits));
}

TEST(Gpt2Weights, AreReadFromHalfPrecisionWithoutLoss) {
  for (const char* variant : {"f16", "bf16"}) {
    TestWorld world;
    const FileGpt gpt(world, hugging_face(std::string(".") + variant), DType::F64);
    EXPECT_TRUE(
        close(logits_of(gpt, 16), expected_logits(std::string("logits_") + variant, 16), kLogits))
        << variant;
    EXPECT_FALSE(close(logits_of(gpt, 16), expected_logits("logits", 16), {1e-5})) << variant;
  }
}

// Sums in F32 through two layers: twice the error of one kernel.
TEST(Gpt2Weights, OfEveryTypeRunInSinglePrecision) {
  for (const char* variant : {"", "f16", "bf16"}) {
    TestWorld world;
    const std::string dot = *variant ? "." : "", underscore = *variant ? "_" : "";
    const FileGpt gpt(world, hugging_face(dot + variant), DType::F32);
    EXPECT_TRUE(close(logits_of(gpt, 16), expected_logits("logits" + underscore + variant, 16),
                      tolerance_of(DType::F32, 2)))
        << variant;
  }
}

TEST(Gpt2Weights, ServeAShorterContext) {
  TestWorld world;
  const Safetensors file = hugging_face();
  GptConfig config = gpt2_config(file);
  config.dtype = DType::F64;
  config.context = 7;
  const FileGpt gpt(world, file, config);
  EXPECT_TRUE(close(logits_of(gpt, 7), expected_logits("logits", 7), kLogits));
  config.context = 17;
  EXPECT_TRUE(error_says([&] { FileGpt(world, file, config); },
                         {file.path(), "transformer.wpe.weight", "(16, 20)", "(17, 20)"}));
}

TEST(Gpt2Weights, FillThePaddingOfTheTableWithZeros) {
  TestWorld world;  // where new memory holds NaN
  const FileGpt gpt(world, hugging_face(), DType::F32);
  const Parameter& table = *gpt.store.parameters().front();
  ASSERT_EQ(table.shape, (Shape{128, 20}));
  for (const double x : to_doubles(table.value().rows(45, 128))) ASSERT_EQ(x, 0.0);
  for (const Parameter* p : gpt.store.parameters()) EXPECT_FALSE(has_nan(p->value())) << p->name;
}

// Two heads of two columns. Theirs are the columns q00 q01 q10 q11, k00 ..., v00 ... v11 (head,
// column of the head), counted from 0; ours the rows q00 q01 k00 k01 v00 v01, then head 1.
TEST(Gpt2Weights, FuseQueriesKeysAndValuesHeadByHead) {
  const GptConfig config{.layers = 1, .heads = 2, .width = 4, .context = 1, .vocabulary = 1};
  CpuDevice device{{.poison = true}};
  const std::vector<double> order{0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11};
  std::vector<double> theirs, ours;
  for (const int c : {0, 1, 2, 3})
    for (int column = 0; column < 12; ++column) theirs.push_back(100 * c + column);
  for (const double column : order)
    for (const int c : {0, 1, 2, 3}) ours.push_back(100 * c + column);
  const auto check = [&](const char* parameter, const Shape& their_shape, const Shape& our_shape,
                         const std::vector<double>& their_values,
                         const std::vector<double>& our_values) {
    for (const DType dtype : {DType::F64, DType::F32, DType::F16}) {
      const Tensor from = from_doubles(their_values, their_shape, dtype, device);
      const Tensor there(our_shape, dtype, device), back(their_shape, dtype, device);
      from_gpt2(there, from, parameter, config);
      EXPECT_EQ(to_doubles(there), our_values) << parameter;
      to_gpt2(back, there, parameter, config);
      EXPECT_EQ(to_doubles(back), their_values) << parameter;
    }
  };
  check("blocks.0.attention.qkv.weight", {4, 12}, {12, 4}, theirs, ours);
  check("blocks.0.attention.qkv.bias", {12}, {12}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, order);
  check("blocks.0.mlp.fc.weight", {4, 16}, {16, 4},
        {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,   //
         20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35,   //
         40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55,   //
         60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75},  //
        {0,  20, 40, 60, 1,  21, 41, 61, 2,  22, 42, 62, 3,  23, 43, 63,   //
         4,  24, 44, 64, 5,  25, 45, 65, 6,  26, 46, 66, 7,  27, 47, 67,   //
         8,  28, 48, 68, 9,  29, 49, 69, 10, 30, 50, 70, 11, 31, 51, 71,   //
         12, 32, 52, 72, 13, 33, 53, 73, 14, 34, 54, 74, 15, 35, 55, 75});
}

TEST(Gpt2Weights, GoToHuggingFacesLayoutAndBack) {
  TestWorld world;
  TestGpt gpt(world, odd_config());
  const GptConfig& config = gpt.config;
  const Parameter& table = *gpt.store.parameters().front();
  for (double& x : table.value().rows(config.vocabulary, config.table_rows()).values<double>())
    x = 0;
  for (const Parameter* p : gpt.store.parameters()) {
    const Tensor theirs(gpt2_tensor(p->name, config).shape, DType::F64, world.device);
    const Tensor back(p->shape, DType::F64, world.device);
    to_gpt2(theirs, p->value(), p->name, config);
    from_gpt2(back, theirs, p->name, config);
    EXPECT_TRUE(same_bits(back, p->value())) << p->name;
  }
}

TEST(Gpt2Weights, RefuseWhatIsNoParameterOfGpt2) {
  const GptConfig config = odd_config();
  CpuDevice device;
  const Tensor x({15}, DType::F64, device), y({16}, DType::F64, device),
      single({15}, DType::F32, device);
  EXPECT_TRUE(
      error_says([&] { gpt2_tensor("blocks.0.gate.weight", config); }, {"blocks.0.gate.weight"}));
  EXPECT_TRUE(error_says([&] { to_gpt2(y, x, "norm.bias", config); },
                         {"to_gpt2", "norm.bias", "(16)", "(15)"}));
  EXPECT_TRUE(error_says([&] { from_gpt2(x, y, "norm.bias", config); },
                         {"from_gpt2", "norm.bias", "(16)", "(15)"}));
  EXPECT_TRUE(
      error_says([&] { from_gpt2(single, x, "norm.bias", config); }, {"norm.bias", "F64", "F32"}));
}

}  // namespace
}  // namespace aisc
