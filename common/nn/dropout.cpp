#include "common/nn/dropout.h"

#include <utility>

#include "common/core/error.h"

namespace aisc {

Dropout::Dropout(const Rank& rank, std::string name, double rate, std::uint64_t seed)
    : rank_(rank), name_(std::move(name)), rate_(rate), seed_(seed) {
  if (!(rate >= 0 && rate < 1))
    fail("dropout: rate is " + std::to_string(rate) + ", expected 0 <= rate < 1");
}

// Element (b, t, c) of the global batch has index b * 2^32 + t * C + c in the step's stream,
// whoever holds it and whatever the length of the sequence on this rank.
Tensor Dropout::apply(Tensor x, const Pass& pass) const {
  if (rate_ == 0 || !pass.training) return x;
  const auto span = rank_.trace.span("dropout", name_);
  const Philox random(seed_, name_, pass.step);
  Tensor y = output_like(x);
  const std::int64_t samples = x.shape()[0], width = x.shape()[-1];
  for (std::int64_t b = 0; b < samples; ++b) {
    const auto first = (static_cast<std::uint64_t>(pass.first_sample + b) << 32) +
                       static_cast<std::uint64_t>(pass.first_token * width);
    ops::dropout(y.rows(b, b + 1), x.rows(b, b + 1), rate_, random, first);
  }
  return y;
}

Tensor Dropout::forward(Tensor x, Saved& /*saved*/, const Pass& pass) const {
  return apply(std::move(x), pass);
}

Tensor Dropout::backward(Tensor dy, Saved& /*saved*/, const Pass& pass) {
  return apply(std::move(dy), pass);  // the mask is drawn again, not saved
}

}  // namespace aisc
