#include "06_tensor_parallel/row_parallel.h"

#include <fmt/format.h>

#include "06_tensor_parallel/f_and_g.h"
#include "common/core/error.h"

namespace aisc {

RowParallelLinear::RowParallelLinear(const Rank& rank, Communicator& tp, const std::string& name,
                                     std::int64_t in, std::int64_t out, double stddev,
                                     Linear::Gelu gelu)
    : Layer(rank, name), tp_(tp), gelu_(gelu) {
  if (gelu == Linear::Gelu::Behind)
    fail(
        fmt::format("{}: a GELU in the product of a row-parallel layer would be of a rank's share "
                    "and not of the sum: expected a layer of its own behind it",
                    name));
  even_share(tp, name, "inputs", in);
  weight_ = split_parameter(name + ".weight", {out, in}, 1, tp.rank(), tp.size(),
                            Init::normal(stddev), true);
  bias_ = whole_parameter(name + ".bias", {out}, Init::constant(0), false);
}

Tensor RowParallelLinear::sum_of_shares(const Tensor& x) const {
  // LAB 06.3: forward of the row-parallel layer
  // > product(x, weight_) is this rank's share of y without the bias, bias_.value(), which
  // > ops::add_bias(as_rows(y), as_rows(y), bias) adds in place. How often may it be added?
  // > begin_through() of g begins the sum; wait_for(rank_, std::move(passing), name_) is y behind
  // > it.
  Passing share = begin_through(Conjugate::G, Direction::Forward, tp_,
                                product(x, weight_));  // comm: y; all that follows needs it
  Tensor y = wait_for(rank_, std::move(share), name_);
  ops::add_bias(as_rows(y), as_rows(y), bias_.value());
  return y;
  // END LAB 06.3
}

Tensor RowParallelLinear::forward(Tensor x, Saved& saved, const Pass& /*pass*/) const {
  const auto span = rank_.trace.span("product", weight_.name);
  Tensor y = sum_of_shares(x);
  saved.push(std::move(x));
  return y;
}

Tensor RowParallelLinear::backward(Tensor dy, Saved& saved, const Pass& pass) {
  const auto span = rank_.trace.span("product", weight_.name);
  Tensor x = saved.pop();                                                   // (..., I/t)
  const Tensor z = gelu_ == Linear::Gelu::Before ? saved.pop() : Tensor();  // (..., I/t)
  Tensor dx = input_grad(dy, weight_, z);                                   // (..., I/t)
  bias_grad(rank_, bias_, dy);
  weight_grad(pass, weight_, std::move(dy), std::move(x));  // dW += dy^T x, its columns of W
  return dx;
}

}  // namespace aisc
