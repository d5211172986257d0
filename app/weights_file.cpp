#include "app/weights_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "common/core/error.h"
#include "common/core/system/files.h"
#include "common/ops/ops.h"
#include "formats/json_file.h"

namespace aisc {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// As transformers names no model.
constexpr const char* kWithExperts = "gpt_with_experts";
constexpr const char* kInCodes = "gpt_in_codes";  // with experts or without

nlohmann::ordered_json config_json(const char* model_type, const GptConfig& config) {
  const GptExperts& e = config.experts;
  nlohmann::ordered_json j{{"model_type", model_type},      {"n_layer", config.layers},
                           {"n_head", config.heads},        {"n_embd", config.width},
                           {"n_positions", config.context}, {"vocab_size", config.vocabulary}};
  if (e.count > 0)
    j["experts"] = {{"count", e.count},       {"every", e.every},     {"router", e.router},
                    {"capacity", e.capacity}, {"balance", e.balance}, {"z_loss", e.z_loss},
                    {"shared", e.shared}};
  return j;
}

// What config.json beside the file says; null: there is none, or it is not of this kind.
json described(const Safetensors& file, std::string& path) {
  path = fs::path(file.path()).replace_filename("config.json").string();
  if (!fs::exists(path)) return {};
  json j = parse_json(read_file(path), path);
  const json type = j.is_object() ? j.value("model_type", json()) : json();
  return type == kWithExperts || type == kInCodes ? j : json();
}

bool is_in_codes(const json& described) {
  return !described.is_null() && described["model_type"] == kInCodes;
}

template <class T>
void take(const json& j, const char* key, const std::string& path, T& value) {
  try {
    j.at(key).get_to(value);
  } catch (const json::exception&) {
    fail(fmt::format("{}: \"{}\": found {}, expected {}", path, key,
                     j.is_object() && j.contains(key) ? shown(j[key]) : "nothing",
                     std::is_same_v<T, std::string> ? "a text"
                     : std::is_same_v<T, bool>      ? "true or false"
                                                    : "a number"));
  }
}

void require_rows(const Safetensors& file, const char* name, std::int64_t rows,
                  std::int64_t width) {
  const SafetensorsEntry& entry = file.at(name);
  if (entry.shape != std::vector<std::int64_t>{rows, width})
    fail(fmt::format("{}: \"{}\" has shape ({}), config.json says ({}, {})", file.path(), name,
                     fmt::join(entry.shape, ", "), rows, width));
}

// Is it in codes, then? Where they are refused that is an error.
bool take_codes(const Safetensors& file, WeightCodes codes) {
  if (codes == WeightCodes::Refused) require_numbers(file);
  return !compression_in(file).empty();
}

}  // namespace

Shape shape_in_file(const Parameter& p) {
  const Shape& whole = p.global_shape;
  return p.init.drawn < 0 ? whole : whole.with(0, p.init.drawn / (whole.count() / whole[0]));
}

std::string compression_in(const Safetensors& file) {
  std::string path;
  const json j = described(file, path);
  if (is_in_codes(j)) {
    json compression;
    take(j, "compression", path, compression);
    return compression.dump();
  }
  for (const SafetensorsEntry& entry : file.entries())
    if (entry.name.ends_with(".codes"))
      fail(
          fmt::format("{}: \"{}\" are codes, and {} does not say of which kind: expected "
                      "\"model_type\": \"{}\" and \"compression\", as compress wrote them there",
                      file.path(), entry.name, path, kInCodes));
  return {};
}

void require_numbers(const Safetensors& file) {
  if (!compression_in(file).empty())
    fail(file.path() +
         ": its weights are codes of a few bits, expected floating numbers: it can only generate "
         "text, which train_gpt --from does; what it was compressed from can do all else");
}

std::string coded_config(const GptConfig& config, const std::string& compression) {
  nlohmann::ordered_json j = config_json(kInCodes, config);
  j["compression"] = nlohmann::ordered_json::parse(compression);
  return j.dump(2) + "\n";
}

GptConfig config_in(const Safetensors& file, std::int64_t heads, WeightCodes codes) {
  std::string path;
  const bool in_codes = take_codes(file, codes);
  const json j = described(file, path);
  if (j.is_null()) return gpt2_config(file, heads);
  GptConfig config;
  take(j, "n_layer", path, config.layers);
  take(j, "n_head", path, config.heads);
  take(j, "n_embd", path, config.width);
  take(j, "n_positions", path, config.context);
  take(j, "vocab_size", path, config.vocabulary);
  if (!in_codes || j.contains("experts")) {
    GptExperts& e = config.experts;
    json experts;
    take(j, "experts", path, experts);
    take(experts, "count", path, e.count);
    take(experts, "every", path, e.every);
    take(experts, "router", path, e.router);
    take(experts, "capacity", path, e.capacity);
    take(experts, "balance", path, e.balance);
    take(experts, "z_loss", path, e.z_loss);
    take(experts, "shared", path, e.shared);
  }
  config.validate();
  require_rows(file, "wte.weight", config.vocabulary, config.width);
  require_rows(file, "wpe.weight", config.context, config.width);
  file.at(fmt::format("blocks.{}.norm1.weight", config.layers - 1));  // has it so many blocks?
  return config;
}

Gpt2Outline weights_outline(const GptConfig& config, const ParameterStore& whole,
                            std::int32_t end_of_text) {
  if (config.experts.count == 0) return gpt2_outline(config, whole, config.dtype, end_of_text);
  Gpt2Outline outline{
      .tensors = {}, .metadata = {}, .config = config_json(kWithExperts, config).dump(2) + "\n"};
  for (const Parameter* p : whole.parameters())
    outline.tensors.push_back({p->name, config.dtype, shape_in_file(*p)});
  return outline;
}

void to_weights_file(View theirs, ConstView ours, const Parameter& parameter,
                     const GptConfig& config) {
  if (config.experts.count == 0) return to_gpt2(theirs, ours, parameter.name, config);
  const std::int64_t count = theirs.count();
  theirs.device().copy(theirs.flat(0, count), ours.flat(0, count));
}

WeightsFile::WeightsFile(const Safetensors& file, const GptConfig& config, WeightCodes codes)
    : file_(file) {
  if (!take_codes(file, codes) && config.experts.count == 0) gpt2_.emplace(file, config);
}

void WeightsFile::read(const Parameter& parameter, View whole) const {
  if (gpt2_) return gpt2_->read(parameter.name, whole);
  const Shape shape = shape_in_file(parameter);
  const std::int64_t count = shape.count();
  file_.read_part(parameter.name, shape, 0, whole.flat(0, count));
  if (count < whole.count()) ops::fill(whole.flat(count, whole.count() - count), 0);
}

std::string GptWeights::remark(const Safetensors& file, const GptConfig& config) const {
  if (says_heads(file)) return {};
  return fmt::format(
      "{}: no config.json beside it says how many heads the model has; it is taken to have {}, of "
      "{} columns, as GPT-2's have: --heads says otherwise",
      file.path(), config.heads, config.width / config.heads);
}

WeightsOutline GptWeights::outline(const GptConfig& config, const ParameterStore& whole) const {
  const Gpt2Outline of_gpt2 = weights_outline(config, whole, end_of_text_);
  WeightsOutline outline{.parameters = {}, .metadata = of_gpt2.metadata, .config = of_gpt2.config};
  for (const SafetensorsSpec& tensor : of_gpt2.tensors)
    outline.parameters.push_back({{tensor.name}, tensor.shape});
  return outline;
}

void GptWeights::to_file(View theirs, ConstView ours, const Parameter& parameter,
                         const GptConfig& config) const {
  to_weights_file(theirs, ours, parameter, config);
}

WeightsFormat::Read GptWeights::reader(const Safetensors& file, const GptConfig& config,
                                       const StepParts& parts) const {
  GptConfig in_file = config;
  const bool upcycles =
      config.experts.count > 0 && config_in(file, config.heads).experts.count == 0;
  if (upcycles) in_file.experts = {};
  if (upcycles && !parts.upcycle)
    fail(file.path() + ": a model without experts: expected one with them, or how they begin");
  const auto weights = std::make_shared<const WeightsFile>(file, in_file);
  const auto read = [weights](const Parameter& p, View whole) { weights->read(p, whole); };
  return [read, upcycle = upcycles ? parts.upcycle : nullptr](const Parameter& p, View whole) {
    if (upcycle) return upcycle(p, whole, read);
    read(p, whole);
    return true;
  };
}

}  // namespace aisc
