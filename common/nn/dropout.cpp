#include "common/nn/dropout.h"

#include <algorithm>
#include <utility>

namespace aisc {

std::vector<Dropout::Run> Dropout::runs(const Tensor& x, const Pass& pass) const {
  std::vector<Run> all;
  const std::int64_t samples = x.shape()[0], width = x.shape()[-1];
  const std::int64_t tokens = x.count() / std::max<std::int64_t>(samples * width, 1);
  for (std::int64_t b = 0; b < samples; ++b) {
    for (std::int64_t t = 0, end = 0; t < tokens; t = end) {  // tokens that follow one another
      end = t < pass.tokens.split ? std::min(pass.tokens.split, tokens) : tokens;
      all.push_back({.at = (b * tokens + t) * width,
                     .count = (end - t) * width,
                     .first = (static_cast<std::uint64_t>(pass.first_sample + b) << 32) +
                              static_cast<std::uint64_t>(pass.tokens.position(t) * width)});
    }
  }
  return all;
}

Tensor Dropout::apply(Tensor x, const Pass& pass, View mask) const {
  const auto span = rank_.trace.span("dropout", name_);
  const Philox random(seed_, name_, pass.step);
  Tensor y = output_like(x);
  for (const Run& run : runs(x, pass))
    ops::dropout(y.view().flat(run.at, run.count), x.view().flat(run.at, run.count), rate_, random,
                 run.first, mask ? mask.flat(run.at, run.count) : View());
  return y;
}

Tensor Dropout::forward(Tensor x, Saved& saved, const Pass& pass) const {
  if (!drops(pass)) return x;
  if (masks_ == Masks::Drawn || !saved.keeps()) return apply(std::move(x), pass, {});
  Tensor mask(x.shape(), DType::U8, x.device());
  Tensor y = apply(std::move(x), pass, mask);
  saved.push(std::move(mask));
  return y;
}

Tensor Dropout::backward(Tensor dy, Saved& saved, const Pass& pass) {
  if (!drops(pass)) return dy;
  if (masks_ == Masks::Drawn) return apply(std::move(dy), pass, {});
  const auto span = rank_.trace.span("dropout", name_);
  const Tensor mask = saved.pop();
  Tensor dx = output_like(dy);
  ops::dropout_backward(dx, dy, mask, rate_);
  return dx;
}

}  // namespace aisc
