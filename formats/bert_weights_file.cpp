// A BERT in a file: what is in it, checked before it is believed.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <tuple>
#include <utility>

#include "common/core/error.h"
#include "formats/bert_weights.h"
#include "formats/json_file.h"

namespace aisc {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::int64_t kBertHeadWidth = 64;
constexpr std::string_view kBertPrefix = "bert.", kNormInName = "LayerNorm.";

// Parts of BERT that a file has as a whole or not at all.
enum class BertPart { Encoder, Pooler, MaskedWords, NextSentence };

BertPart bert_part(const std::string& parameter) {
  if (parameter.starts_with("pooler.")) return BertPart::Pooler;
  if (parameter.starts_with("next_sentence.")) return BertPart::NextSentence;
  for (const char* begin : {"transform.", "transform_norm.", "head."})
    if (parameter.starts_with(begin)) return BertPart::MaskedWords;
  return BertPart::Encoder;
}

// A name in the file: "bert." may be absent, and LayerNorm's weight and bias be gamma and beta.
class BertNames {
 public:
  explicit BertNames(const Safetensors& file) : file_(file) {
    constexpr std::string_view kTable = "embeddings.word_embeddings.weight";
    for (const std::string_view prefix : {kBertPrefix, std::string_view()})
      if (file.find(fmt::format("{}{}", prefix, kTable))) {
        has_body_ = !prefix.empty();
        return;
      }
    fail(fmt::format("{}: not a BERT: no tensor \"{}{}\" or \"{}\" among {}", file.path(),
                     kBertPrefix, kTable, kTable, file.entries().size()));
  }

  std::string operator()(std::string name) const {
    if (!has_body_ && name.starts_with(kBertPrefix)) name = name.substr(kBertPrefix.size());
    if (file_.find(name)) return name;
    const std::size_t norm = name.rfind(kNormInName);
    if (norm == std::string::npos) return name;
    const bool is_weight = name.ends_with(".weight");
    const std::string older =
        name.substr(0, norm + kNormInName.size()) + (is_weight ? "gamma" : "beta");
    return file_.find(older) ? older : name;
  }

 private:
  const Safetensors& file_;
  bool has_body_ = true;
};

std::pair<std::int64_t, std::int64_t> bert_table(const Safetensors& file, const std::string& name) {
  const SafetensorsEntry& entry = file.at(name);
  if (entry.shape.size() != 2 || entry.shape[0] < 1 || entry.shape[1] < 1)
    fail(fmt::format("{}: \"{}\" has shape ({}), expected a matrix", file.path(), name,
                     fmt::join(entry.shape, ", ")));
  return {entry.shape[0], entry.shape[1]};
}

// What config.json says, checked against what this program computes.
void take_bert_config(const json& j, const std::string& name, GptConfig& config) {
  if (!j.is_object()) fail(name + ": expected an object");
  const auto expect = [&](const char* key, const json& expected) {
    if (j.contains(key) && j[key] != expected)
      fail(fmt::format("{}: \"{}\" is {}, expected {}", name, key, shown(j[key]), expected.dump()));
  };
  constexpr const char* kHeads = "num_attention_heads";
  if (j.contains(kHeads)) {
    if (!j[kHeads].is_number_integer())
      fail(
          fmt::format("{}: \"{}\" is {}, expected a whole number", name, kHeads, shown(j[kHeads])));
    config.heads = j[kHeads].get<std::int64_t>();
  }
  expect("model_type", "bert");
  expect("num_hidden_layers", config.layers);
  expect("hidden_size", config.width);
  expect("intermediate_size", 4 * config.width);
  expect("max_position_embeddings", config.context);
  expect("vocab_size", config.vocabulary);
  expect("type_vocab_size", kBertSegments);
  expect("hidden_act", "gelu");
  expect("layer_norm_eps", kBertEpsilon);
  expect("position_embedding_type", "absolute");
  expect("is_decoder", false);
  expect("add_cross_attention", false);
  expect("tie_word_embeddings", true);
}

// A tensor of the file is what the model needs it to be; of positions it may have more.
void check_bert_tensor(const Safetensors& file, const SafetensorsEntry& entry,
                       const std::string& parameter, const Shape& shape) {
  std::vector<std::int64_t> expected;
  for (int d = 0; d < shape.rank(); ++d) expected.push_back(shape[d]);
  const bool longer = parameter == "wpe.weight" && entry.shape.size() == 2 &&
                      entry.shape[0] > expected[0] && entry.shape[1] == expected[1];
  if (entry.shape != expected && !longer)
    fail(fmt::format("{}: byte {}: \"{}\" has shape ({}), expected ({})", file.path(), entry.offset,
                     entry.name, fmt::join(entry.shape, ", "), fmt::join(expected, ", ")));
  if (entry.dtype != "F32" && entry.dtype != "F16" && entry.dtype != "BF16" && entry.dtype != "F64")
    fail(fmt::format("{}: byte {}: \"{}\" is {}, expected F32, F16, BF16 or F64", file.path(),
                     entry.offset, entry.name, entry.dtype));
}

// Whatever else is in the file is known to be of no interest.
void check_other_tensors(const Safetensors& file, const BertNames& names,
                         const std::set<std::string>& known) {
  const auto require_equal = [&](const std::string& name, const std::string& other) {
    if (!file.find(other) || !file.equal(name, other))
      fail(fmt::format("{}: {} differs from {}: they must be tied", file.path(), name, other));
  };
  for (const SafetensorsEntry& entry : file.entries()) {
    if (known.contains(entry.name) || entry.name.ends_with("embeddings.position_ids")) continue;
    if (entry.name == "cls.predictions.decoder.weight")
      require_equal(entry.name, names("bert.embeddings.word_embeddings.weight"));
    else if (entry.name == "cls.predictions.decoder.bias")
      require_equal(entry.name, "cls.predictions.bias");
    else
      fail(fmt::format("{}: unknown tensor \"{}\": this is not BERT's architecture", file.path(),
                       entry.name));
  }
}

// Every parameter is in the file, in its shape, before memory is asked for. Returns those of parts
// that it has nothing of.
std::vector<std::string> check_bert_tensors(const Safetensors& file, const GptConfig& config) {
  const BertNames names(file);
  std::set<BertPart> present{BertPart::Encoder};
  std::map<std::string, BertTensors> wanted;
  for (const std::string& parameter : bert_parameters(config)) {
    BertTensors& tensors = wanted[parameter] = bert_tensors(parameter, config);
    for (std::string& name : tensors.names) {
      name = names(name);
      if (file.find(name)) present.insert(bert_part(parameter));
    }
  }
  std::vector<std::string> missing;
  std::set<std::string> known;
  for (const std::string& parameter : bert_parameters(config)) {
    if (!present.contains(bert_part(parameter))) {
      missing.push_back(parameter);
      continue;
    }
    const BertTensors& tensors = wanted.at(parameter);
    for (const std::string& name : tensors.names) {
      check_bert_tensor(file, file.at(name), parameter, tensors.shape);
      known.insert(name);
    }
  }
  check_other_tensors(file, names, known);
  return missing;
}

// All but the heads, which the shapes do not tell.
GptConfig bert_sizes_of(const Safetensors& file) {
  const BertNames names(file);
  GptConfig config;
  std::tie(config.vocabulary, config.width) =
      bert_table(file, names("bert.embeddings.word_embeddings.weight"));
  config.context = bert_table(file, names("bert.embeddings.position_embeddings.weight")).first;
  const auto has_layer = [&](std::int64_t i) {
    return file.find(names(fmt::format("bert.encoder.layer.{}.attention.self.query.weight", i)));
  };
  config.layers = 0;
  while (has_layer(config.layers)) ++config.layers;
  config.encoder_blocks = config.layers;
  return config;
}

void check_bert_sizes(const Safetensors& file, const GptConfig& config) {
  if (config.layers == 0)
    fail(file.path() + ": not a BERT: no tensor \"encoder.layer.0.attention.self.query.weight\"");
  if (config.heads < 1 || config.width % config.heads != 0)
    fail(fmt::format("{}: width {} is not a multiple of {} heads", file.path(), config.width,
                     config.heads));
  check_bert_tensors(file, config);
}

}  // namespace

GptConfig bert_config_with(const Safetensors& file, std::string_view config_json,
                           const std::string& name) {
  GptConfig config = bert_sizes_of(file);
  config.heads = std::max<std::int64_t>(1, config.width / kBertHeadWidth);
  take_bert_config(parse_json(config_json, name), name, config);
  check_bert_sizes(file, config);
  return config;
}

GptConfig bert_config(const Safetensors& file, std::int64_t heads) {
  const fs::path beside = fs::path(file.path()).replace_filename("config.json");
  if (fs::exists(beside))
    return bert_config_with(file, read_file(beside.string()), beside.string());
  GptConfig config = bert_sizes_of(file);
  config.heads = heads > 0 ? heads : std::max<std::int64_t>(1, config.width / kBertHeadWidth);
  if (heads == 0 && config.width % kBertHeadWidth != 0)
    fail(
        fmt::format("{}: how many attention heads its {} columns make does not show in the "
                    "weights, there is no config.json beside it, and BERT's {} columns a head do "
                    "not divide them: expected to be told heads",
                    file.path(), config.width, kBertHeadWidth));
  check_bert_sizes(file, config);
  return config;
}

BertFile::BertFile(const Safetensors& file, const GptConfig& config)
    : file_(file), config_(config), missing_(check_bert_tensors(file, config)) {}

void BertFile::read(const std::string& parameter, View ours) const {
  const BertTensors tensors = bert_tensors(parameter, config_);
  if (std::find(missing_.begin(), missing_.end(), parameter) != missing_.end())
    fail(fmt::format("{}: {} is not in the file: no tensor \"{}\"", file_.path(), parameter,
                     tensors.names.front()));
  const BertNames names(file_);
  const Tensor theirs(tensors.stacked(), ours.dtype(), ours.device());
  std::int64_t begin = 0;
  for (const std::string& name : tensors.names) {
    const std::string there = names(name);
    const std::int64_t rows = file_.at(there).shape[0];  // of positions it may have more
    const View part = theirs.view().flat(begin, tensors.shape.count());
    file_.read_part(there, tensors.shape.with(0, rows), 0, part);
    begin += tensors.shape.count();
  }
  from_bert(ours, theirs, parameter, config_);
}

}  // namespace aisc
