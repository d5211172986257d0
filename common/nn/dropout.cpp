#include "common/nn/dropout.h"

#include <algorithm>
#include <utility>

namespace aisc {

// Element (b, t, c) of the global batch has index b * 2^32 + t * C + c in the step's stream,
// whoever holds it and whatever the length of the sequence on this rank.
Tensor Dropout::apply(Tensor x, const Pass& pass) const {
  if (rate_ == 0 || !pass.training) return x;
  const auto span = rank_.trace.span("dropout", name_);
  const Philox random(seed_, name_, pass.step);
  Tensor y = output_like(x);
  const std::int64_t samples = x.shape()[0], width = x.shape()[-1];
  const std::int64_t tokens = x.count() / std::max<std::int64_t>(samples * width, 1);
  for (std::int64_t b = 0; b < samples; ++b) {
    for (std::int64_t t = 0, end = 0; t < tokens; t = end) {  // a run of tokens
      end = t < pass.tokens.split ? std::min(pass.tokens.split, tokens) : tokens;
      const auto first = (static_cast<std::uint64_t>(pass.first_sample + b) << 32) +
                         static_cast<std::uint64_t>(pass.tokens.position(t) * width);
      const std::int64_t at = (b * tokens + t) * width, count = (end - t) * width;
      ops::dropout(y.view().flat(at, count), x.view().flat(at, count), rate_, random, first);
    }
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
