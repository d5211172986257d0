#include "06_tensor_parallel/head_dropout.h"

namespace aisc {

std::uint64_t HeadDropout::first_index(std::int64_t sample, std::int64_t token,
                                       std::int64_t own) const {
  // LAB 06.6: masks inside the heads
  // > Element (sample, token, column) of the whole tensor, C columns wide, has the index
  // > sample * 2^32 + token * C + column. This rank has `own` columns of every token. How wide is
  // > the whole, and which of its columns is this rank's first? (tp_.size(), tp_.rank())
  const std::int64_t whole = own * tp_.size(), first_column = own * tp_.rank();
  return (static_cast<std::uint64_t>(sample) << 32) +
         static_cast<std::uint64_t>(token * whole + first_column);
  // END LAB 06.6
}

std::vector<Dropout::Run> HeadDropout::runs(const Tensor& x, const Pass& pass) const {
  std::vector<Run> all;
  const std::int64_t B = x.shape()[0], T = x.shape()[1], own = x.shape()[-1];
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t t = 0; t < T; ++t)
      all.push_back({(b * T + t) * own, own,
                     first_index(pass.first_sample + b, pass.tokens.position(t), own)});
  return all;
}

}  // namespace aisc
