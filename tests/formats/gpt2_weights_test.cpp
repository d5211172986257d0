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

TEST(Gpt2Weights, TellTheSizes) {
  const GptConfig config = gpt2_config(hugging_face());
  EXPECT_EQ(config.layers, 2);
  EXPECT_EQ(config.heads, 4);  // in config.json only
  EXPECT_EQ(config.width, 20);
  EXPECT_EQ(config.context, 16);
  EXPECT_EQ(config.vocabulary, 45);
}

// In F32 sums go through two layers: twice the error of one kernel.
TEST(Gpt2Weights, OfEveryTypeGiveHuggingFacesLogits) {
  for (const std::string variant : {"", "f16", "bf16"})
    for (const DType dtype : {DType::F64, DType::F32}) {
      TestWorld world;
      const std::string dot = variant.empty() ? "" : ".", underscore = variant.empty() ? "" : "_";
      const FileGpt gpt(world, hugging_face(dot + variant), dtype);
      EXPECT_TRUE(close(logits_of(gpt, 16), expected_logits("logits" + underscore + variant, 16),
                        dtype == DType::F64 ? kLogits : tolerance_of(DType::F32, 2)))
          << variant << " in " << name_of(dtype);
      if (variant.empty() || dtype == DType::F32) continue;
      EXPECT_FALSE(close(logits_of(gpt, 16), expected_logits("logits", 16), {1e-5})) << variant;
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
  theirs.clear();
  ours.clear();
  for (const int row : {0, 1, 2, 3})
    for (int column = 0; column < 16; ++column) theirs.push_back(20 * row + column);
  for (int column = 0; column < 16; ++column)
    for (const int row : {0, 1, 2, 3}) ours.push_back(20 * row + column);
  check("blocks.0.mlp.fc.weight", {4, 16}, {16, 4}, theirs, ours);
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
