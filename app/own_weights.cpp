#include "app/own_weights.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "app/weights_file.h"
#include "common/core/error.h"
#include "common/core/system/files.h"
#include "common/ops/ops.h"
#include "formats/json_file.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

// What config.json calls the sizes.
constexpr std::pair<const char*, std::int64_t GptConfig::*> kSizes[] = {
    {"layers", &GptConfig::layers},   {"encoder_layers", &GptConfig::encoder_blocks},
    {"heads", &GptConfig::heads},     {"width", &GptConfig::width},
    {"context", &GptConfig::context}, {"vocabulary", &GptConfig::vocabulary}};
constexpr std::pair<const char*, std::int64_t GptExperts::*> kExperts[] = {
    {"count", &GptExperts::count}, {"every", &GptExperts::every}};
constexpr std::pair<const char*, double GptExperts::*> kFactors[] = {
    {"capacity", &GptExperts::capacity},
    {"balance", &GptExperts::balance},
    {"z_loss", &GptExperts::z_loss}};

}  // namespace

GptConfig OwnWeights::config(const Safetensors& file, std::int64_t /*heads*/) const {
  const std::string path =
      std::filesystem::path(file.path()).replace_filename("config.json").string();
  const nlohmann::json j = parse_json(read_file(path), path);
  const auto take = [&](const nlohmann::json& from, const char* key, auto& value) {
    using Value = std::remove_reference_t<decltype(value)>;
    constexpr bool kText = std::is_same_v<Value, std::string>, kBool = std::is_same_v<Value, bool>,
                   kFactor = std::is_same_v<Value, double>;
    const nlohmann::json found = from.is_object() ? from.value(key, nlohmann::json()) : from;
    if (!(kText     ? found.is_string()
          : kBool   ? found.is_boolean()
          : kFactor ? found.is_number()
                    : found.is_number_unsigned()))
      fail(fmt::format("{}: \"{}\": found {}, expected {}", path, key, shown(found),
                       kText   ? "a text"
                       : kBool ? "true or false"
                               : "a number"));
    value = found.get<Value>();
  };
  std::string type;
  take(j, "model_type", type);
  if (type != model_type_)
    fail(fmt::format("{}: \"model_type\": found \"{}\", expected \"{}\"", path, type, model_type_));
  GptConfig config;
  for (const auto& [name, size] : kSizes) take(j, name, config.*size);
  if (j.contains("experts")) {
    for (const auto& [name, size] : kExperts) take(j["experts"], name, config.experts.*size);
    for (const auto& [name, factor] : kFactors) take(j["experts"], name, config.experts.*factor);
    take(j["experts"], "router", config.experts.router);
    take(j["experts"], "shared", config.experts.shared);
  }
  config.validate();
  return config;
}

WeightsOutline OwnWeights::outline(const GptConfig& config, const ParameterStore& whole) const {
  WeightsOutline outline;
  for (const Parameter* p : whole.parameters())
    outline.parameters.push_back({{p->name}, shape_in_file(*p)});
  Json j{{"model_type", model_type_}};
  for (const auto& [name, size] : kSizes) j[name] = config.*size;
  if (config.experts.count > 0) {
    for (const auto& [name, size] : kExperts) j["experts"][name] = config.experts.*size;
    for (const auto& [name, factor] : kFactors) j["experts"][name] = config.experts.*factor;
    j["experts"]["router"] = config.experts.router;
    j["experts"]["shared"] = config.experts.shared;
  }
  outline.config = j.dump(2) + "\n";
  return outline;
}

void OwnWeights::to_file(View theirs, ConstView ours, const Parameter& /*parameter*/,
                         const GptConfig& /*config*/) const {
  const std::int64_t count = theirs.count();
  theirs.device().copy(theirs.flat(0, count), ours.flat(0, count));
}

WeightsFormat::Read OwnWeights::reader(const Safetensors& file, const GptConfig& /*config*/,
                                       const StepParts& /*parts*/) const {
  return [&file](const Parameter& p, View whole) {
    const Shape shape = shape_in_file(p);
    const std::int64_t count = shape.count();
    file.read_part(p.name, shape, 0, whole.flat(0, count));
    if (count < whole.count()) ops::fill(whole.flat(count, whole.count() - count), 0);
    return true;
  };
}

}  // namespace aisc
