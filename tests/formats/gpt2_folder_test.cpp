// The folders that models are exchanged in: what is written is what was read, to the bit, as
// transformers would have written it; and files that are not GPT-2's are named, not believed.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "common/core/system/files.h"
#include "formats/gpt2_weights.h"
#include "tests/formats/gpt2_fixture.h"
#include "tests/support/error_says.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

using nlohmann::json;

// Both models have the same parameters to the bit.
::testing::AssertionResult same_model(const FileGpt& a, const FileGpt& b) {
  const auto &x = a.store.parameters(), &y = b.store.parameters();
  if (x.size() != y.size()) return ::testing::AssertionFailure() << x.size() << ", " << y.size();
  for (std::size_t i = 0; i < x.size(); ++i)
    if (x[i]->name != y[i]->name || !same_bits(x[i]->value(), y[i]->value()))
      return ::testing::AssertionFailure() << x[i]->name;
  return ::testing::AssertionSuccess();
}

// Names and shapes of all tensors.
std::set<std::pair<std::string, std::vector<std::int64_t>>> contents(const Safetensors& file) {
  std::set<std::pair<std::string, std::vector<std::int64_t>>> all;
  for (const SafetensorsEntry& e : file.entries()) all.emplace(e.name, e.shape);
  return all;
}

class Gpt2Folder : public ::testing::Test {
 protected:
  std::string path(const char* name) const { return folder_.path(name); }

  using Tensors = std::map<std::string, Tensor>;
  // Hugging Face's file with a change, beside its config.json.
  Safetensors changed(const std::function<void(Tensors&)>& change) {
    const Safetensors file = hugging_face();
    Tensors tensors;
    for (const SafetensorsEntry& e : file.entries())
      tensors[e.name] = tensor_of(file, e.name, device_, DType::F32);
    change(tensors);
    std::vector<SafetensorsSpec> specs;
    for (const auto& [name, value] : tensors) specs.push_back({name, value.dtype(), value.shape()});
    SafetensorsWriter writer(path("model.safetensors"), specs);
    for (const auto& entry : tensors) writer.append(entry.second);
    writer.commit();
    with_config([](json&) {});
    return Safetensors(path("model.safetensors"));
  }
  // Hugging Face's config.json with a change, beside whatever model is there.
  void with_config(const std::function<void(json&)>& change) const {
    json config = json::parse(read_file(fixture("huggingface_gpt2/config.json")));
    change(config);
    write_file(path("config.json"), config.dump(2));
  }
  Tensor zeros(const Shape& shape, DType dtype = DType::F32) {
    return Tensor::zeros(shape, dtype, device_);
  }

  TemporaryFolder folder_;
  CpuDevice device_;
};

TEST_F(Gpt2Folder, HoldsTheBitsThatWereReadInEveryType) {
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16}) {
    TestWorld world;
    const FileGpt first(world, hugging_face(), dtype);
    write_gpt2_weights(folder_.path(), first.config, first.store);
    const Safetensors written(path("model.safetensors"));
    EXPECT_EQ(contents(written), contents(hugging_face()));
    for (const SafetensorsEntry& e : written.entries()) EXPECT_EQ(e.dtype, name_of(dtype));
    EXPECT_EQ(written.metadata().at("format"), "pt");  // transformers asks for it
    const FileGpt second(world, written, dtype);
    EXPECT_EQ(second.config.heads, 4);
    EXPECT_TRUE(same_model(first, second)) << name_of(dtype);
  }
}

TEST_F(Gpt2Folder, HoldsHuggingFacesBytesInHuggingFacesType) {
  const std::pair<const char*, DType> variants[] = {
      {"", DType::F32}, {".f16", DType::F16}, {".bf16", DType::BF16}};
  for (const auto& [variant, dtype] : variants) {
    TestWorld world;
    const Safetensors theirs = hugging_face(variant);
    const FileGpt gpt(world, theirs, dtype);
    write_gpt2_weights(folder_.path(), gpt.config, gpt.store);
    const Safetensors ours(path("model.safetensors"));
    for (const SafetensorsEntry& e : theirs.entries())
      EXPECT_TRUE(same_bits(tensor_of(ours, e.name, device_, dtype),
                            tensor_of(theirs, e.name, device_, dtype)))
          << e.name << variant;
  }
}

TEST_F(Gpt2Folder, DescribesTheModelAsTransformersDoes) {
  TestWorld world;
  const FileGpt gpt(world, hugging_face(), DType::BF16);
  write_gpt2_weights(folder_.path(), gpt.config, gpt.store, 44);
  const json ours = json::parse(read_file(path("config.json")));
  const json theirs = json::parse(read_file(fixture("huggingface_gpt2/config.json")));
  for (const char* key : {"architectures", "model_type", "activation_function", "n_layer", "n_head",
                          "n_embd", "n_positions", "vocab_size", "layer_norm_epsilon"})
    EXPECT_EQ(ours.at(key), theirs.at(key)) << key;
  EXPECT_EQ(ours.at("torch_dtype"), "bfloat16");
  EXPECT_EQ(ours.at("eos_token_id"), 44);
  EXPECT_EQ(ours.at("bos_token_id"), 44);
  write_gpt2_weights(folder_.path(), gpt.config, gpt.store);
  EXPECT_TRUE(json::parse(read_file(path("config.json"))).at("eos_token_id").is_null());
}

TEST_F(Gpt2Folder, WithoutAConfigHasHeadsOf64ColumnsOrAsksForThem) {
  TestWorld world;
  for (const auto& [heads, width] : {std::pair{8, 128}, std::pair{4, 24}}) {
    const GptConfig config{
        .layers = 1, .heads = heads, .width = width, .context = 3, .vocabulary = 5};
    const TestGpt gpt(world, config, 1, DType::F32);
    write_gpt2_weights(folder_.path(), config, gpt.store);
    const Safetensors file(path("model.safetensors"));
    EXPECT_EQ(gpt2_config(file).heads, heads);
    EXPECT_TRUE(says_heads(file));
    std::filesystem::remove(path("config.json"));
    EXPECT_FALSE(says_heads(file));
    EXPECT_EQ(gpt2_config(file, heads).heads, heads);
    if (width == 24) continue;
    EXPECT_EQ(gpt2_config(file).heads, 2);
  }
  const Safetensors of_24(path("model.safetensors"));
  EXPECT_TRUE(
      error_says([&] { gpt2_config(of_24); },
                 {"model.safetensors", "24 columns", "config.json", "expected to be told heads"}));
}

TEST_F(Gpt2Folder, MayHoldMasksAndATiedHeadAndNoPrefix) {
  const Safetensors file = changed([&](Tensors& t) {
    t["lm_head.weight"] = t.at("transformer.wte.weight").clone();
    t["transformer.h.0.attn.bias"] = zeros({1, 1, 16, 16}, DType::U8);
    t["transformer.h.1.attn.masked_bias"] = zeros({});
  });
  TestWorld world;
  const FileGpt plain(world, hugging_face(), DType::F64);
  EXPECT_TRUE(same_model(FileGpt(world, file, DType::F64), plain));
  const Safetensors bare = changed([&](Tensors& t) {
    Tensors renamed;
    for (auto& [name, value] : t) renamed[name.substr(12)] = std::move(value);
    t = std::move(renamed);
  });
  EXPECT_TRUE(same_model(FileGpt(world, bare, DType::F64), plain));
}

TEST_F(Gpt2Folder, NamesTheTensorThatDoesNotFit) {
  TestWorld world;
  // Of a tensor in place of the one of this name; without elements: there is none.
  const auto says = [&](const char* name, const Tensor& value, std::vector<std::string> fragments) {
    fragments.insert(fragments.end(), {name, path("model.safetensors")});
    const auto change = [&](Tensors& tensors) {
      tensors.erase(name);
      if (value) tensors[name] = value.share();
    };
    return error_says([&] { FileGpt(world, changed(change), DType::F32); }, fragments);
  };
  EXPECT_TRUE(says("transformer.h.1.mlp.c_fc.bias", {}, {"no tensor"}));
  EXPECT_TRUE(says("transformer.wte.weight", {}, {"\"wte.weight\""}));
  EXPECT_TRUE(says("transformer.ln_f.weight", zeros({21}), {"(21)", "(20)"}));
  EXPECT_TRUE(says("transformer.h.0.mlp.c_fc.weight", zeros({80, 20}), {"(80, 20)", "(20, 80)"}));
  EXPECT_TRUE(says("transformer.wpe.weight", zeros({320}), {"(320)", "a matrix"}));
  EXPECT_TRUE(says("transformer.h.0.gate.weight", zeros({20}), {"unknown tensor"}));
  EXPECT_TRUE(says("lm_head.weight", zeros({45, 20}), {"differs from", "wte.weight"}));
  EXPECT_TRUE(says("transformer.ln_f.bias", zeros({20}, DType::I32), {"I32", "F32"}));
}

TEST_F(Gpt2Folder, IsReadWithTheSizesThatItHas) {
  TestWorld world;
  const Safetensors file = hugging_face();
  const auto says = [&](std::int64_t GptConfig::*size, std::int64_t value,
                        std::vector<std::string> fragments) {
    GptConfig config = gpt2_config(file);
    config.*size = value;
    return error_says([&] { FileGpt(world, file, config); }, fragments);
  };
  EXPECT_TRUE(says(&GptConfig::layers, 3, {"transformer.h.2.ln_1.weight"}));
  EXPECT_TRUE(says(&GptConfig::layers, 1, {"unknown tensor", "transformer.h.1."}));
  EXPECT_TRUE(says(&GptConfig::vocabulary, 46, {"transformer.wte.weight", "(45, 20)", "(46, 20)"}));
  EXPECT_TRUE(says(&GptConfig::width, 24, {"transformer.wte.weight", "(45, 20)", "(45, 24)"}));
}

TEST_F(Gpt2Folder, NamesAConfigThatIsNotGpt2s) {
  const Safetensors file = changed([](Tensors&) {});
  const auto says = [&](const char* key, const json& value,
                        const std::vector<std::string>& fragments) {
    with_config([&](json& config) { config[key] = value; });
    return error_says([&] { gpt2_config(file); }, fragments);
  };
  const std::string config = path("config.json");
  EXPECT_TRUE(
      says("activation_function", "relu", {config, "activation_function", "\"relu\"", "gelu_new"}));
  EXPECT_TRUE(says("n_head", 3, {path("model.safetensors"), "width 20", "3 heads"}));
  EXPECT_TRUE(says("n_head", 0, {"width 20", "0 heads"}));
  EXPECT_TRUE(says("n_head", "four", {config, "n_head", "\"four\"", "whole number"}));
  EXPECT_TRUE(says("layer_norm_epsilon", 1e-6, {config, "layer_norm_epsilon", "1e-06", "1e-05"}));
  EXPECT_TRUE(says("n_inner", 60, {config, "n_inner", "60", "80"}));
  EXPECT_TRUE(says("n_layer", 5, {config, "n_layer", "5", "2"}));
  EXPECT_TRUE(says("model_type", "llama", {config, "model_type", "\"llama\"", "\"gpt2\""}));
  EXPECT_TRUE(says("scale_attn_by_inverse_layer_idx", true,
                   {config, "scale_attn_by_inverse_layer_idx", "true", "false"}));
  EXPECT_TRUE(says("tie_word_embeddings", false, {config, "tie_word_embeddings", "false", "true"}));
  with_config([](json& c) { c["activation_function"] = "gelu_pytorch_tanh", c["n_inner"] = 80; });
  EXPECT_EQ(gpt2_config(file).heads, 4);  // the same things by other names
  write_file(config, "[1, 2]");
  EXPECT_TRUE(error_says([&] { gpt2_config(file); }, {config, "expected an object"}));
}

}  // namespace
}  // namespace aisc
