// Folders with a BERT: what is written is what was read, to the bit; files that hold less than a
// BertForPreTraining, or older names; and files that are not BERT's are named, not believed.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "common/core/system/files.h"
#include "tests/formats/bert_weights_fixture.h"
#include "tests/support/error_says.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

using Json = nlohmann::json;
using BertTensorMap = std::map<std::string, Tensor>;

Safetensors hugging_faces_bert() { return Safetensors(bert_fixture("model.safetensors")); }

Shape shape_in_file(const SafetensorsEntry& entry) {
  if (entry.shape.size() == 1) return {entry.shape[0]};
  return {entry.shape[0], entry.shape[1]};
}

class BertFolder : public ::testing::Test {
 protected:
  std::string path(const char* name) const { return folder_.path(name); }

  Tensor read(const Safetensors& file, const std::string& name, DType dtype) {
    Tensor tensor(shape_in_file(file.at(name)), dtype, device_);
    file.read(name, tensor);
    return tensor;
  }
  // Hugging Face's file with a change, beside its config.json.
  Safetensors changed(const std::function<void(BertTensorMap&)>& change) {
    const Safetensors file = hugging_faces_bert();
    BertTensorMap tensors;
    for (const SafetensorsEntry& e : file.entries())
      tensors[e.name] = read(file, e.name, DType::F32);
    change(tensors);
    std::vector<SafetensorsSpec> specs;
    for (const auto& [name, value] : tensors) specs.push_back({name, value.dtype(), value.shape()});
    SafetensorsWriter writer(path("model.safetensors"), specs);
    for (const auto& entry : tensors) writer.append(entry.second);
    writer.commit();
    with_config([](Json&) {});
    return Safetensors(path("model.safetensors"));
  }
  void with_config(const std::function<void(Json&)>& change) const {
    Json config = Json::parse(read_file(bert_fixture("config.json")));
    change(config);
    write_file(path("config.json"), config.dump(2));
  }
  Tensor zeros(const Shape& shape, DType dtype = DType::F32) {
    return Tensor::zeros(shape, dtype, device_);
  }
  // Every parameter that `file` has is the same as in Hugging Face's.
  void expect_same(const Safetensors& file) {
    const GptConfig config = bert_config(file);
    const BertFile ours(file, config), theirs(hugging_faces_bert_, config);
    for (const std::string& name : bert_parameters(config)) {
      const auto& missing = ours.missing();
      if (std::find(missing.begin(), missing.end(), name) != missing.end()) continue;
      const Shape shape = bert_tensors(name, config).stacked();
      const Tensor a(shape, DType::F32, device_), b(shape, DType::F32, device_);
      ours.read(name, a);
      theirs.read(name, b);
      EXPECT_TRUE(same_bits(a, b)) << name;
    }
  }

  TemporaryFolder folder_;
  CpuDevice device_;
  const Safetensors hugging_faces_bert_ = hugging_faces_bert();
};

TEST_F(BertFolder, HoldsTheBitsThatWereReadInEveryType) {
  const Safetensors theirs = hugging_faces_bert();
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16}) {
    const BertStore bert(device_, bert_config(theirs), dtype, theirs);
    ASSERT_EQ(bert.at("wte.weight").shape[0], 128);  // padded, which no file shows
    write_bert_weights(folder_.path(), bert.config(), bert.store());
    const Safetensors ours(path("model.safetensors"));
    EXPECT_EQ(ours.metadata().at("format"), "pt");  // transformers asks for it
    EXPECT_EQ(ours.entries().size(), theirs.entries().size());
    for (const SafetensorsEntry& e : theirs.entries()) {
      EXPECT_EQ(ours.at(e.name).shape, e.shape) << e.name;
      EXPECT_EQ(ours.at(e.name).dtype, name_of(dtype)) << e.name;
      EXPECT_TRUE(same_bits(read(ours, e.name, dtype), read(theirs, e.name, dtype))) << e.name;
    }
    const GptConfig again = bert_config(ours);
    EXPECT_EQ(again.heads, 3);
    EXPECT_EQ(again.encoder_blocks, 2);
  }
}

TEST_F(BertFolder, DescribesTheModelAsTransformersDoes) {
  const Safetensors file = hugging_faces_bert();
  const BertStore bert(device_, bert_config(file), DType::BF16, file);
  write_bert_weights(folder_.path(), bert.config(), bert.store(), 7);
  const Json ours = Json::parse(read_file(path("config.json")));
  const Json theirs = Json::parse(read_file(bert_fixture("config.json")));
  for (const char* key :
       {"architectures", "model_type", "hidden_act", "num_hidden_layers", "num_attention_heads",
        "hidden_size", "intermediate_size", "max_position_embeddings", "vocab_size",
        "type_vocab_size", "layer_norm_eps", "tie_word_embeddings"})
    EXPECT_EQ(ours.at(key), theirs.at(key)) << key;
  EXPECT_EQ(ours.at("torch_dtype"), "bfloat16");
  EXPECT_EQ(ours.at("pad_token_id"), 7);
  write_bert_weights(folder_.path(), bert.config(), bert.store(), -1);
  EXPECT_TRUE(Json::parse(read_file(path("config.json"))).at("pad_token_id").is_null());
}

TEST_F(BertFolder, MayHoldTiedWeightsAndPositionIds) {
  expect_same(changed([&](BertTensorMap& t) {
    t["cls.predictions.decoder.weight"] = t.at("bert.embeddings.word_embeddings.weight").clone();
    t["cls.predictions.decoder.bias"] = t.at("cls.predictions.bias").clone();
    t["bert.embeddings.position_ids"] = zeros({1, 40}, DType::I32);
  }));
}

TEST_F(BertFolder, MayUseTheOlderNamesOfNorms) {
  const Safetensors file = changed([&](BertTensorMap& t) {
    BertTensorMap renamed;
    for (auto& [name, value] : t) {
      std::string older = name;
      if (const std::size_t norm = name.find("LayerNorm."); norm != std::string::npos)
        older = name.substr(0, norm + 10) + (name.ends_with("weight") ? "gamma" : "beta");
      renamed[older] = std::move(value);
    }
    t = std::move(renamed);
  });
  ASSERT_TRUE(file.find("cls.predictions.transform.LayerNorm.gamma"));
  ASSERT_FALSE(file.find("bert.embeddings.LayerNorm.bias"));
  EXPECT_TRUE(BertFile(file, bert_config(file)).missing().empty());
  expect_same(file);
}

// A BertModel alone, with and without a pooler, as BertModel.save_pretrained writes it.
TEST_F(BertFolder, MayHoldABareEncoder) {
  for (const bool has_pooler : {true, false}) {
    const Safetensors file = changed([&](BertTensorMap& t) {
      BertTensorMap bare;
      for (auto& [name, value] : t)
        if (name.starts_with("bert.") && (has_pooler || !name.starts_with("bert.pooler")))
          bare[name.substr(5)] = std::move(value);
      bare["embeddings.position_ids"] = zeros({1, 40}, DType::I32);
      t = std::move(bare);
    });
    const GptConfig config = bert_config(file);
    const BertFile weights(file, config);
    std::vector<std::string> expected;
    if (!has_pooler) expected = {"pooler.weight", "pooler.bias"};
    for (const char* name :
         {"transform.weight", "transform.bias", "transform_norm.weight", "transform_norm.bias",
          "head.bias", "next_sentence.weight", "next_sentence.bias"})
      expected.emplace_back(name);
    EXPECT_EQ(weights.missing(), expected);
    expect_same(file);
    const Tensor bias({2}, DType::F32, device_);
    EXPECT_TRUE(error_says([&] { weights.read("next_sentence.bias", bias); },
                           {file.path(), "next_sentence.bias", "cls.seq_relationship.bias"}));
  }
}

// A BertForMaskedLM: there is "bert." in front of names, and neither pooler nor next sentence.
TEST_F(BertFolder, MayHoldOneHeadOnly) {
  const Safetensors file = changed([&](BertTensorMap& t) {
    for (const char* name : {"bert.pooler.dense.weight", "bert.pooler.dense.bias",
                             "cls.seq_relationship.weight", "cls.seq_relationship.bias"})
      t.erase(name);
  });
  EXPECT_EQ(BertFile(file, bert_config(file)).missing(),
            (std::vector<std::string>{"pooler.weight", "pooler.bias", "next_sentence.weight",
                                      "next_sentence.bias"}));
  expect_same(file);
}

TEST_F(BertFolder, NamesTheTensorThatDoesNotFit) {
  // Of a tensor in place of the one of this name; without elements: there is none.
  const auto says = [&](const char* name, const Tensor& value, std::vector<std::string> fragments) {
    fragments.insert(fragments.end(), {name, path("model.safetensors")});
    const auto change = [&](BertTensorMap& tensors) {
      tensors.erase(name);
      if (value) tensors[name] = value.share();
    };
    return error_says([&] { bert_config(changed(change)); }, fragments);
  };
  EXPECT_TRUE(says("bert.embeddings.word_embeddings.weight", {}, {"not a BERT", "among 45"}));
  EXPECT_TRUE(says("bert.embeddings.word_embeddings.weight", zeros({61}), {"(61)", "a matrix"}));
  EXPECT_TRUE(says("bert.embeddings.position_embeddings.weight", {}, {"no tensor"}));
  EXPECT_TRUE(
      says("bert.embeddings.token_type_embeddings.weight", zeros({3, 24}), {"(3, 24)", "(2, 24)"}));
  EXPECT_TRUE(says("bert.encoder.layer.1.intermediate.dense.weight", zeros({64, 24}),
                   {"(64, 24)", "(96, 24)"}));
  EXPECT_TRUE(says("bert.encoder.layer.1.output.dense.bias", {}, {"no tensor"}));
  EXPECT_TRUE(says("bert.embeddings.LayerNorm.bias", {}, {"no tensor"}));
  EXPECT_TRUE(says("bert.pooler.dense.bias", {}, {"no tensor"}));  // all of a part, or none
  EXPECT_TRUE(says("cls.predictions.transform.LayerNorm.weight", {}, {"no tensor"}));
  EXPECT_TRUE(says("cls.predictions.bias", zeros({60}), {"(60)", "(61)"}));
  EXPECT_TRUE(says("classifier.weight", zeros({2, 24}), {"unknown tensor", "BERT"}));
  EXPECT_TRUE(says("cls.predictions.decoder.weight", zeros({61, 24}),
                   {"differs from", "word_embeddings.weight", "tied"}));
  EXPECT_TRUE(
      says("cls.predictions.decoder.bias", zeros({61}), {"differs from", "cls.predictions.bias"}));
  EXPECT_TRUE(says("bert.pooler.dense.weight", zeros({24, 24}, DType::I32), {"I32", "F32"}));
  const auto no_layers = [](BertTensorMap& tensors) {
    std::erase_if(tensors, [](const auto& e) { return e.first.starts_with("bert.encoder."); });
  };
  EXPECT_TRUE(error_says([&] { bert_config(changed(no_layers)); },
                         {path("config.json"), "num_hidden_layers", "2", "0"}));
  std::filesystem::remove(path("config.json"));
  EXPECT_TRUE(error_says([&] { bert_config(Safetensors(path("model.safetensors")), 3); },
                         {"not a BERT", "encoder.layer.0.attention.self.query.weight"}));
}

TEST_F(BertFolder, IsReadWithTheSizesThatItHas) {
  const Safetensors file = hugging_faces_bert();
  const auto says = [&](std::int64_t GptConfig::*size, std::int64_t value,
                        std::vector<std::string> fragments) {
    GptConfig config = bert_config(file);
    config.*size = value;
    return error_says([&] { BertFile(file, config); }, fragments);
  };
  EXPECT_TRUE(says(&GptConfig::layers, 3, {"bert.encoder.layer.2.attention.self.query.weight"}));
  EXPECT_TRUE(says(&GptConfig::layers, 1, {"unknown tensor", "bert.encoder.layer.1."}));
  EXPECT_TRUE(says(&GptConfig::vocabulary, 62, {"word_embeddings.weight", "(61, 24)", "(62, 24)"}));
  EXPECT_TRUE(says(&GptConfig::width, 30, {"word_embeddings.weight", "(61, 24)", "(61, 30)"}));
}

TEST_F(BertFolder, WithoutAConfigHasHeadsOf64ColumnsOrAsksForThem) {
  const Safetensors of_24 = changed([](BertTensorMap&) {});
  std::filesystem::remove(path("config.json"));
  EXPECT_EQ(bert_config(of_24, 4).heads, 4);
  EXPECT_TRUE(error_says([&] { bert_config(of_24, 5); }, {"width 24", "5 heads"}));
  EXPECT_TRUE(
      error_says([&] { bert_config(of_24); },
                 {"model.safetensors", "24 columns", "config.json", "expected to be told heads"}));
  const GptConfig config{
      .layers = 1, .heads = 2, .width = 128, .context = 3, .vocabulary = 5, .encoder_blocks = 1};
  const BertStore bert(device_, config, DType::F32);
  write_bert_weights(folder_.path(), config, bert.store());
  std::filesystem::remove(path("config.json"));
  EXPECT_EQ(bert_config(Safetensors(path("model.safetensors"))).heads, 2);
}

TEST_F(BertFolder, NamesAConfigThatIsNotBerts) {
  const Safetensors file = changed([](BertTensorMap&) {});
  const std::string config = path("config.json");
  const auto says = [&](const char* key, const Json& value, std::vector<std::string> fragments) {
    fragments.insert(fragments.end(), {config, key});
    with_config([&](Json& j) { j[key] = value; });
    return error_says([&] { bert_config(file); }, fragments);
  };
  EXPECT_TRUE(says("hidden_act", "relu", {"\"relu\"", "\"gelu\""}));
  EXPECT_TRUE(says("hidden_act", "gelu_new", {"\"gelu_new\"", "\"gelu\""}));
  EXPECT_TRUE(says("num_attention_heads", "four", {"\"four\"", "whole number"}));
  EXPECT_TRUE(says("layer_norm_eps", 1e-5, {"1e-05", "1e-12"}));
  EXPECT_TRUE(says("intermediate_size", 60, {"60", "96"}));
  EXPECT_TRUE(says("type_vocab_size", 3, {"3", "2"}));
  EXPECT_TRUE(says("num_hidden_layers", 5, {"5", "2"}));
  EXPECT_TRUE(says("hidden_size", 25, {"25", "24"}));
  EXPECT_TRUE(says("vocab_size", 60, {"60", "61"}));
  EXPECT_TRUE(says("max_position_embeddings", 512, {"512", "40"}));
  EXPECT_TRUE(says("model_type", "roberta", {"\"roberta\"", "\"bert\""}));
  EXPECT_TRUE(says("position_embedding_type", "relative_key", {"\"relative_key\"", "absolute"}));
  EXPECT_TRUE(says("is_decoder", true, {"true", "false"}));
  EXPECT_TRUE(says("add_cross_attention", true, {"true", "false"}));
  EXPECT_TRUE(says("tie_word_embeddings", false, {"false", "true"}));
  with_config([](Json& j) { j["num_attention_heads"] = 5; });
  EXPECT_TRUE(error_says([&] { bert_config(file); }, {"width 24", "5 heads"}));
  with_config([](Json& j) { j["num_attention_heads"] = 0; });
  EXPECT_TRUE(error_says([&] { bert_config(file); }, {"width 24", "0 heads"}));
  write_file(config, "[1, 2]");
  EXPECT_TRUE(error_says([&] { bert_config(file); }, {config, "expected an object"}));
}

}  // namespace
}  // namespace aisc
