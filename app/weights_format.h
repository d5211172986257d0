// How the weights of a kind of model lie in the file of a checkpoint: GPT's, BERT's.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/nn/parameter_store.h"
#include "common/train/step_parts.h"
#include "formats/safetensors.h"

namespace aisc {

// What the files say beside the numbers.
struct WeightsOutline {
  // A parameter's tensors there: one or several, which are of one shape and together its numbers.
  struct Tensors {
    std::vector<std::string> names;
    Shape shape;  // of each
    // One behind the other.
    Shape stacked() const {
      return shape.with(0, static_cast<std::int64_t>(names.size()) * shape[0]);
    }
  };
  std::vector<Tensors> parameters;  // in the store's order
  std::map<std::string, std::string> metadata;
  std::string config;  // config.json
};

class WeightsFormat {
 public:
  virtual ~WeightsFormat() = default;

  // The sizes of the model in a file, which `heads` may complete (0: they do not). Throws Error for
  // a file of another kind of model.
  virtual GptConfig config(const Safetensors& file, std::int64_t heads) const = 0;
  // A line for the user where something of these sizes is a guess; else "".
  virtual std::string remark(const Safetensors& /*file*/, const GptConfig& /*config*/) const {
    return "";
  }

  // `whole`: all parameters of the model, unsplit.
  virtual WeightsOutline outline(const GptConfig& config, const ParameterStore& whole) const = 0;
  // One whole parameter's numbers; theirs is stacked().
  virtual void to_file(View theirs, ConstView ours, const Parameter& parameter,
                       const GptConfig& config) const = 0;

  // Fills host memory of a parameter's global_shape, of any floating type; false: the file has
  // none of it, and what was drawn stays. Throws Error naming the tensor.
  using Read = std::function<bool(const Parameter& parameter, View whole)>;
  // Of a model of these sizes, and a Trainer's parts. The file must outlive what is returned.
  // Throws Error for a file of another kind of model, or of other sizes.
  virtual Read reader(const Safetensors& file, const GptConfig& config,
                      const StepParts& parts) const = 0;
};

}  // namespace aisc
