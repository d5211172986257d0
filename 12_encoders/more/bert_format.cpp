#include "12_encoders/more/bert_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "common/core/error.h"
#include "formats/bert_weights.h"

namespace aisc {
namespace {

// Hugging Face's tables of words have another name than ours.
bool is_own(const Safetensors& file) { return file.find("wte.weight") != nullptr; }

}  // namespace

GptConfig BertWeights::config(const Safetensors& file, std::int64_t heads) const {
  return is_own(file) ? with_experts_.config(file, heads) : bert_config(file, heads);
}

std::string BertWeights::remark(const Safetensors& file, const GptConfig& config) const {
  const auto beside = std::filesystem::path(file.path()).replace_filename("config.json");
  if (std::filesystem::exists(beside)) return "";
  return fmt::format(
      "{}: no config.json beside it says how many heads the model has; it is taken to have {}, of "
      "{} columns, as BERT's have: --heads says otherwise",
      file.path(), config.heads, config.width / config.heads);
}

WeightsOutline BertWeights::outline(const GptConfig& config, const ParameterStore& whole) const {
  if (config.experts.count > 0) return with_experts_.outline(config, whole);
  BertOutline of_bert = bert_outline(config, whole, config.dtype, pad_);
  WeightsOutline outline{.parameters = {},
                         .metadata = std::move(of_bert.metadata),
                         .config = std::move(of_bert.config)};
  for (const Parameter* p : whole.parameters()) {
    BertTensors tensors = bert_tensors(p->name, config);
    outline.parameters.push_back({std::move(tensors.names), tensors.shape});
  }
  return outline;
}

void BertWeights::to_file(View theirs, ConstView ours, const Parameter& parameter,
                          const GptConfig& config) const {
  if (config.experts.count > 0) return with_experts_.to_file(theirs, ours, parameter, config);
  to_bert(theirs, ours, parameter.name, config);
}

WeightsFormat::Read BertWeights::reader(const Safetensors& file, const GptConfig& config,
                                        const StepParts& parts) const {
  if (is_own(file)) return with_experts_.reader(file, config, parts);
  if (config.experts.count > 0)
    fail(file.path() + ": a BERT without experts: expected one with them, or --experts 0");
  const auto bert = std::make_shared<const BertFile>(file, config);
  return [bert](const Parameter& p, View whole) {
    const std::vector<std::string>& missing = bert->missing();
    if (std::find(missing.begin(), missing.end(), p.name) != missing.end()) return false;
    bert->read(p.name, whole);
    return true;
  };
}

}  // namespace aisc
