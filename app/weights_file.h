// A file of a model's weights: GPT-2's (formats/gpt2_weights.h); or, where blocks have experts,
// which no GPT-2 has, this program's own: every parameter whole, under its name and in its shape
// here, without the rows that are padding, and the sizes in config.json beside it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "formats/gpt2_weights.h"

namespace aisc {

// The sizes of the model in a file, told by config.json beside it or as gpt2_config() does. Throws
// Error as that does, and for a config.json of a model with experts that lacks something, or that
// tensors contradict.
GptConfig config_in(const Safetensors& file, std::int64_t heads = 0);

// As gpt2_outline() and to_gpt2(). `whole`: all parameters of the model, unsplit.
Gpt2Outline weights_outline(const GptConfig& config, const ParameterStore& whole,
                            std::int32_t end_of_text);
void to_weights_file(View theirs, ConstView ours, const Parameter& parameter,
                     const GptConfig& config);

// Reads parameters, one at a time.
class WeightsFile {
 public:
  // The file must outlive this. Throws Error as Gpt2File does.
  WeightsFile(const Safetensors& file, const GptConfig& config);
  // `whole`: host memory of the parameter's global_shape, of any floating type. Throws Error naming
  // the tensor: missing, or of another shape.
  void read(const Parameter& parameter, View whole) const;

 private:
  const Safetensors& file_;
  std::optional<Gpt2File> gpt2_;  // none: it has experts
};

}  // namespace aisc
