#include "07_sequence_parallel/token_linear.h"

#include <fmt/format.h>

#include "07_sequence_parallel/g_and_g_bar.h"
#include "07_sequence_parallel/token_share.h"
#include "common/core/error.h"

namespace aisc {

GatheredColumnLinear::GatheredColumnLinear(const Rank& rank, Communicator& tp,
                                           const std::string& name, std::int64_t in,
                                           std::int64_t out, double stddev, Linear::Gelu gelu)
    : Layer(rank, name), tp_(tp), gelu_(gelu) {
  even_share(tp, name, "outputs", out);
  weight_ = split_parameter(name + ".weight", {out, in}, 0, tp.rank(), tp.size(),
                            Init::normal(stddev), true);
  bias_ = split_parameter(name + ".bias", {out}, 0, tp.rank(), tp.size(), Init::constant(0), false);
}

Tensor GatheredColumnLinear::forward(Tensor x, Saved& saved, const Pass& pass) const {
  const auto span = rank_.trace.span("product", weight_.name);
  const Tensor all = pass.cache  // (B, T, I)
                         ? x.share()
                         : wait_for(rank_,
                                    begin_through(SequenceConjugate::G, Direction::Forward, tp_,
                                                  x),  // comm: x, which the product needs
                                    name_);
  const bool gelu = gelu_ == Linear::Gelu::Behind;
  Tensor z = gelu ? Tensor(all.shape().with(-1, weight_.shape[0]), x.dtype(), x.device())
                  : Tensor();  // (B, T, O/t)
  Tensor y =
      product(all, weight_, {.bias = bias_.value(), .before_gelu = gelu ? z.view() : View()});
  saved.push(std::move(x));
  if (gelu) saved.push(std::move(z));
  return y;
}

Tensor GatheredColumnLinear::backward(Tensor dy, Saved& saved, const Pass& pass) {
  const auto span = rank_.trace.span("product", weight_.name);
  const Tensor x = saved.pop();                                             // (B, T/t, I)
  const Tensor z = gelu_ == Linear::Gelu::Before ? saved.pop() : Tensor();  // (B, T/t, I)
  Passing all = begin_through(SequenceConjugate::G, Direction::Forward, tp_,
                              x);  // comm: x once more, beside the product of dx
  Tensor share = input_grad(dy, weight_, z);
  Tensor all_x = wait_for(rank_, std::move(all), name_);  // (B, T, I)
  Passing dx = begin_through(SequenceConjugate::G, Direction::Backward, tp_,
                             share);  // comm: dx, beside the products below
  bias_grad(rank_, bias_, dy);
  weight_grad(pass, weight_, std::move(dy), std::move(all_x));  // dW += dy^T x
  return wait_for(rank_, std::move(dx), name_);                 // (B, T/t, I)
}

ScatteredRowLinear::ScatteredRowLinear(const Rank& rank, Communicator& tp, const std::string& name,
                                       std::int64_t in, std::int64_t out, double stddev,
                                       Linear::Gelu gelu)
    : Layer(rank, name), tp_(tp), gelu_(gelu) {
  if (gelu == Linear::Gelu::Behind)
    fail(fmt::format("{}: a GELU of a rank's share is none of the sum: expected a layer behind it",
                     name));
  even_share(tp, name, "inputs", in);
  weight_ = split_parameter(name + ".weight", {out, in}, 1, tp.rank(), tp.size(),
                            Init::normal(stddev), true);
  bias_ = whole_parameter(name + ".bias", {out}, Init::constant(0), false);
  Parameter* const of_own_tokens[] = {&bias_};
  sum_over_tokens(of_own_tokens);
}

Tensor ScatteredRowLinear::forward(Tensor x, Saved& saved, const Pass& pass) const {
  const auto span = rank_.trace.span("product", weight_.name);
  Tensor share = product(x, weight_);  // (B, T, O)
  Passing passing = pass.cache
                        ? begin_through(Conjugate::G, Direction::Forward, tp_, std::move(share))
                        : begin_through(SequenceConjugate::GBar, Direction::Forward, tp_,
                                        share);           // comm: y, which all that follows needs
  Tensor y = wait_for(rank_, std::move(passing), name_);  // (B, T/t, O)
  ops::add_bias(as_rows(y), as_rows(y), bias_.value());
  saved.push(std::move(x));
  return y;
}

Tensor ScatteredRowLinear::backward(Tensor dy, Saved& saved, const Pass& pass) {
  const auto span = rank_.trace.span("product", weight_.name);
  Tensor x = saved.pop();                                                   // (B, T, I/t)
  const Tensor z = gelu_ == Linear::Gelu::Before ? saved.pop() : Tensor();  // (B, T, I/t)
  Passing passing = begin_through(SequenceConjugate::GBar, Direction::Backward, tp_,
                                  dy);  // comm: dy, which both products need
  bias_grad(rank_, bias_, dy);
  Tensor all_dy = wait_for(rank_, std::move(passing), name_);  // (B, T, O)
  Tensor dx = input_grad(all_dy, weight_, z);                  // (B, T, I/t)
  weight_grad(pass, weight_, std::move(all_dy), std::move(x));
  return dx;
}

}  // namespace aisc
