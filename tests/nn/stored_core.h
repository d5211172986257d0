// An attention that stores its scores, as it was done before FlashAttention: the oracle of the
// fused core, and one that key lengths and recomputation make a difference to.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/nn/attention.h"
#include "tests/support/tensors.h"

namespace aisc {

// qkv (B, T, H * 3 * D) -> (B, T, H * D), on the host, in doubles. Kept: qkv and the probabilities
// (B, H, T, T) in qkv's type.
class StoredCore final : public Layer {
 public:
  StoredCore(const Rank& rank, std::string name, std::int64_t heads, bool causal)
      : Layer(rank, std::move(name)), heads_(heads), causal_(causal) {}

  Tensor forward(Tensor qkv, Saved& saved, const Pass& pass) const override {
    const auto span = rank_.trace.span("attention", name_);
    const Array x = by_heads(qkv);
    const std::int64_t B = x.extent(0), T = x.extent(1), D = x.extent(3) / 3;
    Array p({B, heads_, T, T}), out({B, T, heads_, D});
    const std::vector<double> lengths =
        pass.key_lengths ? to_doubles(pass.key_lengths) : std::vector<double>(std::size_t(B), T);
    each(x, [&](std::int64_t b, std::int64_t h, std::int64_t t) {
      const auto length = static_cast<std::int64_t>(lengths[std::size_t(b)]);
      const std::int64_t end = causal_ ? std::min(t + 1, length) : length;  // of the keys seen
      double sum = 0;
      for (std::int64_t s = 0; s < end; ++s) {
        double score = 0;
        for (std::int64_t d = 0; d < D; ++d) score += x(b, t, h, d) * x(b, s, h, D + d);
        sum += p(b, h, t, s) = std::exp(score / std::sqrt(double(D)));
      }
      for (std::int64_t s = 0; s < end; ++s) {
        p(b, h, t, s) /= sum;
        for (std::int64_t d = 0; d < D; ++d)
          out(b, t, h, d) += p(b, h, t, s) * x(b, s, h, 2 * D + d);
      }
    });
    Tensor y({B, T, heads_ * D}, qkv.dtype(), qkv.device());
    Tensor probabilities(p.shape, qkv.dtype(), qkv.device());
    write_doubles(y, out.values);
    write_doubles(probabilities, p.values);
    saved.push(std::move(qkv));
    saved.push(std::move(probabilities));
    return y;
  }

  Tensor backward(Tensor dy, Saved& saved, const Pass&) override {
    const auto span = rank_.trace.span("attention", name_);
    const Tensor probabilities = saved.pop(), qkv = saved.pop();
    const Array x = by_heads(qkv), p = to_array(probabilities), dout = by_heads(dy);
    const std::int64_t T = x.extent(1), D = x.extent(3) / 3;
    Array dx(x.shape);
    each(x, [&](std::int64_t b, std::int64_t h, std::int64_t t) {
      std::vector<double> dp(std::size_t(T), 0.0);
      double sum = 0;
      for (std::int64_t s = 0; s < T; ++s) {
        for (std::int64_t d = 0; d < D; ++d) {
          dp[std::size_t(s)] += dout(b, t, h, d) * x(b, s, h, 2 * D + d);
          dx(b, s, h, 2 * D + d) += dout(b, t, h, d) * p(b, h, t, s);
        }
        sum += p(b, h, t, s) * dp[std::size_t(s)];
      }
      for (std::int64_t s = 0; s < T; ++s) {
        const double ds = p(b, h, t, s) * (dp[std::size_t(s)] - sum) / std::sqrt(double(D));
        for (std::int64_t d = 0; d < D; ++d) {
          dx(b, t, h, d) += ds * x(b, s, h, D + d);
          dx(b, s, h, D + d) += ds * x(b, t, h, d);
        }
      }
    });
    Tensor dqkv(qkv.shape(), qkv.dtype(), qkv.device());
    write_doubles(dqkv, dx.values);
    return dqkv;
  }

 private:
  using Array = reference::Array;

  // (B, T, H * n) as (B, T, H, n); of qkv each head's n are D of its query, its key and its value.
  Array by_heads(const Tensor& x) const {
    const Shape& shape = x.shape();
    return to_array(x.view().reshaped({shape[0], shape[1], heads_, shape[2] / heads_}));
  }
  template <class F>
  static void each(const Array& x, F&& f) {
    for (std::int64_t b = 0; b < x.extent(0); ++b)
      for (std::int64_t h = 0; h < x.extent(2); ++h)
        for (std::int64_t t = 0; t < x.extent(1); ++t) f(b, h, t);
  }

  std::int64_t heads_;
  bool causal_;
};

}  // namespace aisc
