#include "common/nn/attention.h"

#include <utility>

#include "common/core/error.h"

namespace aisc {

CausalSelfAttention::CausalSelfAttention(const Rank& rank, const std::string& name,
                                         const Options& options)
    : rank_(rank),
      name_(name),
      heads_(options.heads),
      qkv_(rank, name + ".qkv", options.width, 3 * options.width),
      project_(rank, name + ".project", options.width, options.width, options.residual_stddev),
      dropout_(rank, name + ".dropout", options.dropout, options.seed) {
  if (options.heads < 1 || options.width % options.heads != 0)
    fail("attention: width " + std::to_string(options.width) + " is not a multiple of heads " +
         std::to_string(options.heads));
}

Tensor CausalSelfAttention::forward(Tensor x, Saved& saved, const Pass& pass) const {
  const std::int64_t B = x.shape()[0], T = x.shape()[1], C = x.shape()[2];
  Tensor qkv = qkv_.forward(std::move(x), saved, pass);  // (B, T, H*3*D)
  const DType statistics = qkv.dtype() == DType::F64 ? DType::F64 : DType::F32;
  Tensor out({B, T, C}, qkv.dtype(), qkv.device());              // (B, T, H*D)
  Tensor log_sum_exp({B, heads_, T}, statistics, qkv.device());  // (B, H, T)
  {
    const auto span = rank_.trace.span("attention", name_);
    ops::causal_attention(out, log_sum_exp, qkv, heads_);
  }
  saved.push(std::move(qkv));
  saved.push(out.share());
  saved.push(std::move(log_sum_exp));
  return dropout_.forward(project_.forward(std::move(out), saved, pass), saved, pass);
}

Tensor CausalSelfAttention::backward(Tensor dy, Saved& saved, const Pass& pass) {
  Tensor dout = project_.backward(dropout_.backward(std::move(dy), saved, pass), saved, pass);
  const Tensor log_sum_exp = saved.pop(), out = saved.pop(), qkv = saved.pop();
  Tensor dqkv(qkv.shape(), qkv.dtype(), qkv.device());  // (B, T, H*3*D)
  {
    const auto span = rank_.trace.span("attention", name_);
    ops::causal_attention_backward(dqkv, dout, qkv, out, log_sum_exp, heads_);
  }
  return qkv_.backward(std::move(dqkv), saved, pass);
}

std::vector<Parameter*> CausalSelfAttention::parameters() {
  std::vector<Parameter*> all = qkv_.parameters();
  for (Parameter* p : project_.parameters()) all.push_back(p);
  return all;
}

}  // namespace aisc
