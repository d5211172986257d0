// Hugging Face's BERT in our parameters: every element has its place, in both directions. What is
// computed with them is tested where the model is. tests/fixtures/make_bert_fixture made the files.
#include "formats/bert_weights.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/formats/bert_weights_fixture.h"
#include "tests/support/compare.h"
#include "tests/support/error_says.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

GptConfig bert_sizes(std::int64_t layers, std::int64_t heads, std::int64_t width,
                     std::int64_t context, std::int64_t vocabulary) {
  return {.layers = layers,
          .heads = heads,
          .width = width,
          .context = context,
          .vocabulary = vocabulary,
          .vocabulary_multiple = 8,
          .encoder_blocks = layers};
}

// Without the heads of pre-training.
std::int64_t weights_of(const GptConfig& config) {
  std::int64_t count = 0;
  for (const std::string& parameter : bert_parameters(config)) {
    const BertTensors tensors = bert_tensors(parameter, config);
    if (tensors.names.front().starts_with("bert.")) count += tensors.stacked().count();
  }
  return count;
}

// The table 30,522 C, positions 512 C, segments 2 C, 13 C^2 and so on: facts/encoders.
TEST(BertWeights, AreAsManyAsInBaseAndLarge) {
  EXPECT_EQ(weights_of(bert_sizes(12, 12, 768, 512, 30'522)), 109'482'240);
  EXPECT_EQ(weights_of(bert_sizes(24, 16, 1024, 512, 30'522)), 335'141'888);
}

TEST(BertWeights, TellTheSizes) {
  const GptConfig config = bert_config(Safetensors(bert_fixture("model.safetensors")));
  EXPECT_EQ(config.layers, 2);
  EXPECT_EQ(config.encoder_blocks, 2);
  EXPECT_EQ(config.heads, 3);  // in config.json only
  EXPECT_EQ(config.width, 24);
  EXPECT_EQ(config.context, 40);
  EXPECT_EQ(config.vocabulary, 61);
}

TEST(BertWeights, HaveHuggingFacesNames) {
  const Safetensors file(bert_fixture("model.safetensors"));
  const GptConfig config = bert_config(file);
  std::set<std::string> ours, theirs;
  for (const std::string& parameter : bert_parameters(config))
    for (const std::string& name : bert_tensors(parameter, config).names) {
      EXPECT_TRUE(ours.insert(name).second) << name;
    }
  for (const SafetensorsEntry& entry : file.entries()) theirs.insert(entry.name);
  EXPECT_EQ(ours, theirs);
}

// Two heads of two columns. Theirs are three matrices with rows q00 q01 q10 q11 (head, column of
// the head), k00 ..., v00 ...; counted on, 0 to 11. Ours are the rows q00 q01 k00 k01 v00 v01, then
// head 1.
TEST(BertWeights, FuseQueriesKeysAndValuesHeadByHead) {
  const GptConfig config = bert_sizes(1, 2, 4, 1, 1);
  CpuDevice device{{.poison = true}};
  const std::vector<double> order{0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11};
  std::vector<double> theirs, ours, rows;
  for (int row = 0; row < 12; ++row) {
    rows.push_back(row);
    for (const int column : {0, 1, 2, 3}) theirs.push_back(4 * row + column);
  }
  for (const double row : order)
    for (const int column : {0, 1, 2, 3}) ours.push_back(4 * row + column);
  const auto check = [&](const char* parameter, const Shape& shape,
                         const std::vector<double>& their_values,
                         const std::vector<double>& our_values) {
    const BertTensors tensors = bert_tensors(parameter, config);
    ASSERT_EQ(tensors.names.size(), 3u);
    EXPECT_NE(tensors.names[0].find("layer.0.attention.self.query."), std::string::npos);
    EXPECT_NE(tensors.names[2].find("layer.0.attention.self.value."), std::string::npos);
    EXPECT_EQ(tensors.stacked(), shape);
    for (const DType dtype : {DType::F64, DType::F32, DType::BF16}) {
      const Tensor from = from_doubles(their_values, shape, dtype, device);
      const Tensor there(shape, dtype, device), back(shape, dtype, device);
      from_bert(there, from, parameter, config);
      EXPECT_EQ(to_doubles(there), our_values) << parameter;
      to_bert(back, there, parameter, config);
      EXPECT_TRUE(same_bits(back, from)) << parameter;
    }
  };
  check("blocks.0.attention.qkv.weight", {12, 4}, theirs, ours);
  check("blocks.0.attention.qkv.bias", {12}, rows, order);
}

TEST(BertWeights, AreReadAsTheyAreStored) {
  const Safetensors file(bert_fixture("model.safetensors"));
  CpuDevice device{{.poison = true}};
  const GptConfig config = bert_config(file);
  const BertFile weights(file, config);
  EXPECT_TRUE(weights.missing().empty());
  for (const std::string& parameter : bert_parameters(config)) {
    const BertTensors tensors = bert_tensors(parameter, config);
    const Tensor ours(tensors.stacked(), DType::F64, device),
        theirs(tensors.stacked(), DType::F64, device);
    weights.read(parameter, ours);
    to_bert(theirs, ours, parameter, config);
    std::int64_t begin = 0;
    for (const std::string& name : tensors.names) {
      const Tensor stored(tensors.shape, DType::F64, device);
      file.read(name, stored);
      EXPECT_TRUE(same_bits(theirs.view().flat(begin, stored.count()),
                            stored.view().flat(0, stored.count())))
          << name;
      begin += stored.count();
    }
  }
}

TEST(BertWeights, FillPaddingWithZeros) {
  const Safetensors file(bert_fixture("model.safetensors"));
  CpuDevice device{{.poison = true}};  // where new memory holds NaN
  const BertFile weights(file, bert_config(file));
  const Tensor table({64, 24}, DType::F32, device), bias({64}, DType::F32, device);
  for (const auto& [name, ours] :
       {std::pair{"wte.weight", &table}, std::pair{"head.bias", &bias}}) {
    weights.read(name, *ours);
    EXPECT_FALSE(has_nan(*ours)) << name;
    for (const double x : to_doubles(ours->rows(61, 64))) ASSERT_EQ(x, 0.0) << name;
    for (const double x : to_doubles(ours->rows(0, 61))) ASSERT_NE(x, 0.0) << name;
  }
}

TEST(BertWeights, ServeAShorterContext) {
  const Safetensors file(bert_fixture("model.safetensors"));
  CpuDevice device;
  GptConfig config = bert_config(file);
  const BertStore whole(device, config, DType::F64, file);
  config.context = 7;
  const BertStore cut(device, config, DType::F64, file);
  EXPECT_TRUE(same_bits(cut.at("wpe.weight").value(), whole.at("wpe.weight").value().rows(0, 7)));
  config.context = 41;
  EXPECT_TRUE(error_says(
      [&] { BertFile(file, config); },
      {file.path(), "bert.embeddings.position_embeddings.weight", "(40, 24)", "(41, 24)"}));
}

TEST(BertWeights, RefuseWhatIsNoParameterOfBert) {
  const GptConfig config = bert_sizes(1, 1, 3, 2, 5);
  CpuDevice device;
  const Tensor three({3}, DType::F64, device), four({4}, DType::F64, device),
      single({3}, DType::F32, device), table({8, 2}, DType::F64, device),
      theirs({5, 3}, DType::F64, device);
  for (const char* name : {"blocks.0.gate.weight", "norm.weight", "blocks.0", "wte.bias"})
    EXPECT_TRUE(error_says([&] { bert_tensors(name, config); }, {"BERT has no", name}));
  EXPECT_TRUE(error_says([&] { to_bert(four, three, "pooler.bias", config); },
                         {"to_bert", "pooler.bias", "(4)", "(3)"}));
  EXPECT_TRUE(error_says([&] { from_bert(three, four, "pooler.bias", config); },
                         {"from_bert", "pooler.bias", "(4)", "(3)"}));
  EXPECT_TRUE(error_says([&] { from_bert(table, theirs, "wte.weight", config); },
                         {"wte.weight", "(8, 2)", "(5, 3) or more rows"}));
  EXPECT_TRUE(error_says([&] { from_bert(single, three, "pooler.bias", config); },
                         {"pooler.bias", "F64", "F32"}));
}

}  // namespace
}  // namespace aisc
