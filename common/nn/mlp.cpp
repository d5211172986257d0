#include "common/nn/mlp.h"

#include <utility>

namespace aisc {

Mlp::Mlp(const Rank& rank, const std::string& name, const Options& options)
    : fc_(rank, name + ".fc", options.width, options.hidden),
      project_(rank, name + ".project", options.hidden, options.width, options.residual_stddev),
      dropout_(rank, name + ".dropout", options.dropout, options.seed) {}

Tensor Mlp::forward(Tensor x, Saved& saved, const Pass& pass) const {
  Tensor hidden = fc_.forward_then_gelu(std::move(x), saved);
  return dropout_.forward(project_.forward(std::move(hidden), saved, pass), saved, pass);
}

Tensor Mlp::backward(Tensor dy, Saved& saved, const Pass& pass) {
  dy = dropout_.backward(std::move(dy), saved, pass);
  return fc_.backward(project_.backward_through_gelu(std::move(dy), saved, pass), saved, pass);
}

std::vector<Parameter*> Mlp::parameters() {
  std::vector<Parameter*> all = fc_.parameters();
  for (Parameter* p : project_.parameters()) all.push_back(p);
  return all;
}

}  // namespace aisc
