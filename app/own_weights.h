// Weights in files of this course's own, of models for which nobody else has one: every parameter
// whole, under its name and in its shape here, without the rows that are padding, and the sizes in
// config.json beside it.
#pragma once

#include <string>

#include "app/weights_format.h"

namespace aisc {

class OwnWeights final : public WeightsFormat {
 public:
  // `model_type`: what config.json calls such a model.
  explicit OwnWeights(std::string model_type) : model_type_(std::move(model_type)) {}

  // Throws Error: no config.json beside the file, one of another kind of model, or that lacks a
  // size.
  GptConfig config(const Safetensors& file, std::int64_t heads) const override;
  WeightsOutline outline(const GptConfig& config, const ParameterStore& whole) const override;
  void to_file(View theirs, ConstView ours, const Parameter& parameter,
               const GptConfig& config) const override;
  // Its reader throws Error naming a tensor that is missing, or of another shape; which kind of
  // model a file has, config() looks at.
  Read reader(const Safetensors& file, const GptConfig& config,
              const StepParts& parts) const override;

 private:
  std::string model_type_;
};

}  // namespace aisc
