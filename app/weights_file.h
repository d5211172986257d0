// A file of a model's weights: GPT-2's (formats/gpt2_weights.h); or, where blocks have experts,
// which no GPT-2 has, or matrices are codes of a few bits, this program's own: every parameter
// whole, under its name and in its shape here, without the rows that are padding, and the sizes in
// config.json beside it. Codes (11_gpt_3d/coded_weights.h) have other names there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "app/weights_format.h"
#include "formats/gpt2_weights.h"

namespace aisc {

// "compression" of config.json beside the file, as JSON, where matrices are codes; else "". Throws
// Error for codes without such a config.json.
std::string compression_in(const Safetensors& file);
// Throws Error if they are, saying who reads such a file: nobody trains from codes.
void require_numbers(const Safetensors& file);

// What a reader makes of a file whose matrices are codes.
enum class WeightCodes { Refused, Read };

// The sizes of the model in a file, told by config.json beside it or as gpt2_config() does. Throws
// Error as that does, and for a config.json of a model with experts or codes that lacks something,
// or that tensors contradict.
GptConfig config_in(const Safetensors& file, std::int64_t heads = 0,
                    WeightCodes codes = WeightCodes::Refused);

// config.json of a model whose matrices are codes: its sizes, and `compression`, a JSON object.
std::string coded_config(const GptConfig& config, const std::string& compression);
// The shape of a parameter in this program's own files: without rows that are padding.
Shape shape_in_file(const Parameter& parameter);

// As gpt2_outline() and to_gpt2(). `whole`: all parameters of the model, unsplit.
Gpt2Outline weights_outline(const GptConfig& config, const ParameterStore& whole,
                            std::int32_t end_of_text);
void to_weights_file(View theirs, ConstView ours, const Parameter& parameter,
                     const GptConfig& config);

// Reads parameters, one at a time.
class WeightsFile {
 public:
  // The file must outlive this. Throws Error as Gpt2File does, and for codes that are refused.
  WeightsFile(const Safetensors& file, const GptConfig& config,
              WeightCodes codes = WeightCodes::Refused);
  // `whole`: host memory of the parameter's global_shape, of any floating type. Throws Error naming
  // the tensor: missing (as what is in codes is), or of another shape.
  void read(const Parameter& parameter, View whole) const;

 private:
  const Safetensors& file_;
  std::optional<Gpt2File> gpt2_;  // none: it has experts, or codes
};

// For checkpoints. A model with experts may begin with a file of one without
// (StepParts::upcycle); its reader throws Error where nothing says how.
class GptWeights final : public WeightsFormat {
 public:
  explicit GptWeights(std::int32_t end_of_text = -1) : end_of_text_(end_of_text) {}

  GptConfig config(const Safetensors& file, std::int64_t heads) const override {
    return config_in(file, heads);
  }
  std::string remark(const Safetensors& file, const GptConfig& config) const override;
  WeightsOutline outline(const GptConfig& config, const ParameterStore& whole) const override;
  void to_file(View theirs, ConstView ours, const Parameter& parameter,
               const GptConfig& config) const override;
  Read reader(const Safetensors& file, const GptConfig& config,
              const StepParts& parts) const override;

 private:
  std::int32_t end_of_text_;
};

}  // namespace aisc
