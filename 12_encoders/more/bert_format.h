// A BERT in a checkpoint: Hugging Face's files (formats/bert_weights.h), or where blocks have
// experts, which no BERT there has, this course's own (app/own_weights.h).
#pragma once

#include "app/own_weights.h"

namespace aisc {

class BertWeights final : public WeightsFormat {
 public:
  // pad: [PAD]'s id, which config.json says.
  explicit BertWeights(std::int32_t pad = 0) : pad_(pad) {}

  // As bert_config().
  GptConfig config(const Safetensors& file, std::int64_t heads) const override;
  std::string remark(const Safetensors& file, const GptConfig& config) const override;
  WeightsOutline outline(const GptConfig& config, const ParameterStore& whole) const override;
  void to_file(View theirs, ConstView ours, const Parameter& parameter,
               const GptConfig& config) const override;
  // Of a file without the pooler or the heads, these stay as they were drawn. Throws Error for one
  // without experts, of a model that has some.
  Read reader(const Safetensors& file, const GptConfig& config,
              const StepParts& parts) const override;

 private:
  OwnWeights with_experts_{"bert_with_experts"};
  std::int32_t pad_;
};

}  // namespace aisc
