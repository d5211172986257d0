#include "formats/bert_weights.h"

#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <span>

#include "common/core/error.h"

namespace aisc {
namespace {

using nlohmann::json;

// The shape of a tensor of theirs, in the model's sizes.
enum class BertSize {
  Words,
  Positions,
  Segments,
  Vector,
  Square,
  Up,
  Hidden,
  Down,
  WordVector,
  Two
};

struct BertRule {
  std::string_view ours, theirs;  // in blocks: behind "blocks.N." and "bert.encoder.layer.N."
  BertSize size;
};
// '*' stands for query, key and value.
constexpr BertRule kLayerRules[] = {
    {"attention.qkv.weight", "attention.self.*.weight", BertSize::Square},
    {"attention.qkv.bias", "attention.self.*.bias", BertSize::Vector},
    {"attention.project.weight", "attention.output.dense.weight", BertSize::Square},
    {"attention.project.bias", "attention.output.dense.bias", BertSize::Vector},
    {"norm1.weight", "attention.output.LayerNorm.weight", BertSize::Vector},
    {"norm1.bias", "attention.output.LayerNorm.bias", BertSize::Vector},
    {"mlp.fc.weight", "intermediate.dense.weight", BertSize::Up},
    {"mlp.fc.bias", "intermediate.dense.bias", BertSize::Hidden},
    {"mlp.project.weight", "output.dense.weight", BertSize::Down},
    {"mlp.project.bias", "output.dense.bias", BertSize::Vector},
    {"norm2.weight", "output.LayerNorm.weight", BertSize::Vector},
    {"norm2.bias", "output.LayerNorm.bias", BertSize::Vector},
};
constexpr BertRule kRulesBeforeLayers[] = {
    {"wte.weight", "bert.embeddings.word_embeddings.weight", BertSize::Words},
    {"wpe.weight", "bert.embeddings.position_embeddings.weight", BertSize::Positions},
    {"segments.weight", "bert.embeddings.token_type_embeddings.weight", BertSize::Segments},
    {"embedding_norm.weight", "bert.embeddings.LayerNorm.weight", BertSize::Vector},
    {"embedding_norm.bias", "bert.embeddings.LayerNorm.bias", BertSize::Vector},
};
constexpr BertRule kRulesBehindLayers[] = {
    {"pooler.weight", "bert.pooler.dense.weight", BertSize::Square},
    {"pooler.bias", "bert.pooler.dense.bias", BertSize::Vector},
    {"transform.weight", "cls.predictions.transform.dense.weight", BertSize::Square},
    {"transform.bias", "cls.predictions.transform.dense.bias", BertSize::Vector},
    {"transform_norm.weight", "cls.predictions.transform.LayerNorm.weight", BertSize::Vector},
    {"transform_norm.bias", "cls.predictions.transform.LayerNorm.bias", BertSize::Vector},
    {"head.bias", "cls.predictions.bias", BertSize::WordVector},
    {"next_sentence.weight", "cls.seq_relationship.weight", BertSize::Segments},
    {"next_sentence.bias", "cls.seq_relationship.bias", BertSize::Two},
};

Shape bert_shape(BertSize size, const GptConfig& config) {
  const std::int64_t C = config.width;
  switch (size) {
    case BertSize::Words:
      return {config.vocabulary, C};
    case BertSize::Positions:
      return {config.context, C};
    case BertSize::Segments:
      return {kBertSegments, C};
    case BertSize::Square:
      return {C, C};
    case BertSize::Up:
      return {4 * C, C};
    case BertSize::Hidden:
      return {4 * C};
    case BertSize::Down:
      return {C, 4 * C};
    case BertSize::WordVector:
      return {config.vocabulary};
    case BertSize::Two:
      return {2};
    case BertSize::Vector:
      break;
  }
  return {C};
}

struct BertPlace {
  std::string name;  // theirs, with '*'
  BertSize size;
};

BertPlace bert_place(const std::string& parameter) {
  constexpr std::string_view kBlocks = "blocks.";
  if (parameter.starts_with(kBlocks)) {
    const std::size_t dot = parameter.find('.', kBlocks.size());
    for (const BertRule& rule : kLayerRules)
      if (dot != std::string::npos && parameter.substr(dot + 1) == rule.ours)
        return {fmt::format("bert.encoder.layer.{}.{}",
                            parameter.substr(kBlocks.size(), dot - kBlocks.size()), rule.theirs),
                rule.size};
  }
  for (const std::span<const BertRule> rules :
       {std::span<const BertRule>(kRulesBeforeLayers), {kRulesBehindLayers}})
    for (const BertRule& rule : rules)
      if (parameter == rule.ours) return {std::string(rule.theirs), rule.size};
  fail("BERT has no parameter like " + parameter);
}

bool is_qkv(const BertTensors& tensors) { return tensors.names.size() == 3; }

// Rows s C + h D to s C + (h + 1) D of theirs (s: queries, keys, values; each with all heads) are
// rows (3 h + s) D to (3 h + s + 1) D of ours. Calls move(our first row, their first row).
template <class F>
void for_each_bert_head(const GptConfig& config, F move) {
  const std::int64_t C = config.width, D = C / config.heads;
  for (std::int64_t h = 0; h < config.heads; ++h)
    for (std::int64_t s = 0; s < 3; ++s) move((3 * h + s) * D, s * C + h * D);
}

void require_same_type(const View& to, ConstView from, const std::string& parameter) {
  if (to.dtype() != from.dtype())
    fail(fmt::format("{}: from {} to {}: the types must be equal", parameter, name_of(from.dtype()),
                     name_of(to.dtype())));
}

// Of ours there may be more rows: padding.
void require_shapes(const Shape& theirs, const Shape& ours, const Shape& expected,
                    const std::string& what) {
  if (theirs != expected)
    fail(fmt::format("{}: shape {}, expected {}", what, theirs.to_string(), expected.to_string()));
  if (ours.rank() != expected.rank() || ours[0] < expected[0] ||
      ours.with(0, expected[0]) != expected)
    fail(fmt::format("{}: ours has shape {}, expected {} or more rows", what, ours.to_string(),
                     expected.to_string()));
}

// Only places change, so rows are moved as bytes.
void copy_rows(View to, std::int64_t to_row, ConstView from, std::int64_t from_row,
               std::int64_t rows, std::size_t row_bytes) {
  std::memcpy(static_cast<char*>(to.raw()) + static_cast<std::size_t>(to_row) * row_bytes,
              static_cast<const char*>(from.raw()) + static_cast<std::size_t>(from_row) * row_bytes,
              static_cast<std::size_t>(rows) * row_bytes);
}

std::size_t row_bytes(ConstView x) {
  return static_cast<std::size_t>(x.shape().count() / x.shape()[0]) * size_of(x.dtype());
}

const char* torch_type(DType dtype) {
  switch (dtype) {
    case DType::F64:
      return "float64";
    case DType::BF16:
      return "bfloat16";
    case DType::F16:
      return "float16";
    default:
      return "float32";
  }
}

std::string bert_config_json(const GptConfig& config, DType dtype, std::int32_t pad) {
  const nlohmann::ordered_json j{{"architectures", {"BertForPreTraining"}},
                                 {"model_type", "bert"},
                                 {"hidden_act", "gelu"},
                                 {"layer_norm_eps", kBertEpsilon},
                                 {"num_hidden_layers", config.layers},
                                 {"num_attention_heads", config.heads},
                                 {"hidden_size", config.width},
                                 {"intermediate_size", 4 * config.width},
                                 {"max_position_embeddings", config.context},
                                 {"vocab_size", config.vocabulary},
                                 {"type_vocab_size", kBertSegments},
                                 {"position_embedding_type", "absolute"},
                                 {"hidden_dropout_prob", config.dropout},
                                 {"attention_probs_dropout_prob", 0.0},
                                 {"initializer_range", 0.02},
                                 {"tie_word_embeddings", true},
                                 {"pad_token_id", pad < 0 ? json() : json(pad)},
                                 {"torch_dtype", torch_type(dtype)}};
  return j.dump(2) + "\n";
}

}  // namespace

std::vector<std::string> bert_parameters(const GptConfig& config) {
  std::vector<std::string> names;
  for (const BertRule& rule : kRulesBeforeLayers) names.emplace_back(rule.ours);
  for (std::int64_t i = 0; i < config.layers; ++i)
    for (const BertRule& rule : kLayerRules)
      names.push_back(fmt::format("blocks.{}.{}", i, rule.ours));
  for (const BertRule& rule : kRulesBehindLayers) names.emplace_back(rule.ours);
  return names;
}

BertTensors bert_tensors(const std::string& parameter, const GptConfig& config) {
  const BertPlace place = bert_place(parameter);
  BertTensors tensors{{}, bert_shape(place.size, config)};
  const std::size_t star = place.name.find('*');
  if (star == std::string::npos) {
    tensors.names = {place.name};
  } else {
    for (const char* which : {"query", "key", "value"})
      tensors.names.push_back(std::string(place.name).replace(star, 1, which));
  }
  return tensors;
}

void to_bert(View theirs, ConstView ours, const std::string& parameter, const GptConfig& config) {
  const BertTensors tensors = bert_tensors(parameter, config);
  require_shapes(theirs.shape(), ours.shape(), tensors.stacked(), "to_bert: " + parameter);
  require_same_type(theirs, ours, parameter);
  if (!is_qkv(tensors)) return copy_rows(theirs, 0, ours, 0, theirs.shape()[0], row_bytes(theirs));
  for_each_bert_head(config, [&](std::int64_t our_row, std::int64_t their_row) {
    copy_rows(theirs, their_row, ours, our_row, config.width / config.heads, row_bytes(theirs));
  });
}

void from_bert(View ours, ConstView theirs, const std::string& parameter, const GptConfig& config) {
  const BertTensors tensors = bert_tensors(parameter, config);
  require_shapes(theirs.shape(), ours.shape(), tensors.stacked(), "from_bert: " + parameter);
  require_same_type(ours, theirs, parameter);
  const std::size_t row = row_bytes(theirs);
  if (is_qkv(tensors))
    return for_each_bert_head(config, [&](std::int64_t our_row, std::int64_t their_row) {
      copy_rows(ours, our_row, theirs, their_row, config.width / config.heads, row);
    });
  const std::int64_t rows = theirs.shape()[0];
  copy_rows(ours, 0, theirs, 0, rows, row);
  const auto padding = static_cast<std::size_t>(ours.shape()[0] - rows) * row;
  std::memset(static_cast<char*>(ours.raw()) + static_cast<std::size_t>(rows) * row, 0,
              padding);  // zero in every type
}

BertOutline bert_outline(const GptConfig& config, const ParameterStore& parameters, DType dtype,
                         std::int32_t pad) {
  BertOutline outline{.tensors = {},
                      .metadata = {{"format", "pt"}},
                      .config = bert_config_json(config, dtype, pad)};
  for (const Parameter* p : parameters.parameters()) {
    const BertTensors tensors = bert_tensors(p->name, config);
    for (const std::string& name : tensors.names)
      outline.tensors.push_back({name, dtype, tensors.shape});
  }
  return outline;
}

void write_bert_weights(const std::string& folder, const GptConfig& config,
                        const ParameterStore& parameters, std::int32_t pad) {
  const DType dtype = parameters.values().dtype();
  const BertOutline outline = bert_outline(config, parameters, dtype, pad);
  SafetensorsWriter writer(folder + "/model.safetensors", outline.tensors, outline.metadata);
  CpuDevice host;
  for (const Parameter* p : parameters.parameters()) {
    const BertTensors tensors = bert_tensors(p->name, config);
    Tensor ours(p->shape, dtype, host), theirs(tensors.stacked(), dtype, host);
    host.copy(ours, p->value());
    to_bert(theirs, ours, p->name, config);
    const std::int64_t count = tensors.shape.count();
    for (std::size_t i = 0; i < tensors.names.size(); ++i)
      writer.append(
          theirs.view().flat(static_cast<std::int64_t>(i) * count, count).reshaped(tensors.shape));
  }
  writer.commit();
  write_file(folder + "/config.json", outline.config);
}

}  // namespace aisc
