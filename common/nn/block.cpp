#include "common/nn/block.h"

#include <utility>

namespace aisc {

Block::Block(const Rank& rank, const std::string& name, const Options& o)
    : rank_(rank),
      name_(name),
      norm1_(rank, name + ".norm1", o.width),
      attention_(rank, name + ".attention",
                 {.width = o.width,
                  .heads = o.heads,
                  .residual_stddev = o.residual_stddev,
                  .dropout = o.dropout,
                  .seed = o.seed}),
      norm2_(rank, name + ".norm2", o.width),
      mlp_(rank, name + ".mlp",
           {.width = o.width,
            .hidden = 4 * o.width,
            .residual_stddev = o.residual_stddev,
            .dropout = o.dropout,
            .seed = o.seed}) {}

// branch + trunk, in place of the branch.
Tensor Block::residual(Tensor branch, const Tensor& trunk) const {
  const auto span = rank_.trace.span("residual", name_);
  ops::add(branch, branch, trunk);
  return branch;
}

Tensor Block::forward(Tensor x, Saved& saved, const Pass& pass) const {
  Tensor branch = attention_.forward(norm1_.forward(x.share(), saved, pass), saved, pass);
  x = residual(std::move(branch), x);
  branch = mlp_.forward(norm2_.forward(x.share(), saved, pass), saved, pass);
  return residual(std::move(branch), x);
}

// Both paths of a residual connection receive the same gradient, and what they return is added.
Tensor Block::backward(Tensor dy, Saved& saved, const Pass& pass) {
  Tensor branch = norm2_.backward(mlp_.backward(dy.share(), saved, pass), saved, pass);
  dy = residual(std::move(branch), dy);
  branch = norm1_.backward(attention_.backward(dy.share(), saved, pass), saved, pass);
  return residual(std::move(branch), dy);
}

std::vector<Parameter*> Block::parameters() {
  std::vector<Parameter*> all;
  for (Layer* layer : std::initializer_list<Layer*>{&norm1_, &attention_, &norm2_, &mlp_})
    for (Parameter* p : layer->parameters()) all.push_back(p);
  return all;
}

}  // namespace aisc
