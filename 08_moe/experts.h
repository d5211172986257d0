// The experts of a rank: MLPs of which each has rows of its own.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/nn/layer.h"

namespace aisc {

// E experts x -> W2 gelu(W1 x + b1) + b2, of which this rank has number part * E/parts and those
// behind it. Their weights are stacked: "fc.weight" (E, 4C, C), "fc.bias" (E, 4C),
// "project.weight" (E, C, 4C), "project.bias" (E, C), split along the first dimension, drawn as
// those of a dense MLP.
class Experts {
 public:
  struct Sizes {
    std::int64_t count, width, hidden;
    double residual_stddev;
  };
  // Throws Error naming them if `parts` does not divide the experts.
  Experts(const Rank& rank, const std::string& name, const Sizes& sizes, int part, int parts);

  // x (rows, C), the first counts[0] rows for the first expert of this rank, and so on; some may
  // have none. Products are one an expert and weight.
  Tensor forward(Tensor x, std::span<const std::int64_t> counts, Saved& saved) const;
  Tensor backward(Tensor dy, std::span<const std::int64_t> counts, Saved& saved, const Pass& pass);

  std::int64_t count() const { return fc_weight_.global_shape[0]; }  // on all ranks
  std::vector<Parameter*> parameters() {
    return {&fc_weight_, &fc_bias_, &project_weight_, &project_bias_};
  }

 private:
  Rank rank_;
  std::string name_;
  Parameter fc_weight_, fc_bias_, project_weight_, project_bias_;
};

}  // namespace aisc
