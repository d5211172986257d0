// Yours to write; from 06_tensor_parallel/solution/head_dropout.cpp (stub 2641c29d33d3).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
#include "06_tensor_parallel/head_dropout.h"

#include "common/core/error.h"

namespace aisc {

std::uint64_t HeadDropout::first_index(std::int64_t sample, std::int64_t token,
                                       std::int64_t own) const {
  // LAB 06.6: masks inside the heads
  // Element (sample, token, column) of the whole tensor, C columns wide, has the index
  // sample * 2^32 + token * C + column. This rank has `own` columns of every token. How wide is
  // the whole, and which of its columns is this rank's first? (tp_.size(), tp_.rank())
  throw NotImplemented("lab 06.6: masks inside the heads", __FILE__, __LINE__);
  // END LAB 06.6
}

Tensor HeadDropout::apply(Tensor x, const Pass& pass) const {
  if (rate_ == 0 || !pass.training) return x;
  const auto span = rank_.trace.span("dropout", name_);
  const Philox random(seed_, name_, pass.step);
  Tensor y = output_like(x);
  const std::int64_t B = x.shape()[0], T = x.shape()[1], own = x.shape()[-1];
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t t = 0; t < T; ++t) {
      const std::uint64_t first = first_index(pass.first_sample + b, pass.tokens.position(t), own);
      const std::int64_t at = (b * T + t) * own;
      ops::dropout(y.view().flat(at, own), x.view().flat(at, own), rate_, random, first);
    }
  return y;
}

Tensor HeadDropout::forward(Tensor x, Saved& /*saved*/, const Pass& pass) const {
  return apply(std::move(x), pass);
}

Tensor HeadDropout::backward(Tensor dy, Saved& /*saved*/, const Pass& pass) {
  return apply(std::move(dy), pass);  // the mask is drawn again, not saved
}

}  // namespace aisc
