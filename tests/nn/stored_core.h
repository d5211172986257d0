// An attention that stores its scores, as it was done before FlashAttention: the oracle of the
// fused core, and one that key lengths and recomputation make a difference to.
#pragma once

#include <cmath>
#include <limits>
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
    const std::int64_t B = qkv.shape()[0], T = qkv.shape()[1], D = qkv.shape()[2] / 3 / heads_;
    const std::vector<double> x = to_doubles(qkv);
    std::vector<double> lengths(static_cast<std::size_t>(B), static_cast<double>(T));
    if (pass.key_lengths) lengths = to_doubles(pass.key_lengths);
    std::vector<double> p(static_cast<std::size_t>(B * heads_ * T * T)), out(x.size() / 3);
    each(B, T, [&](std::int64_t b, std::int64_t h, std::int64_t t) {
      double sum = 0;
      for (std::int64_t s = 0; s < T; ++s) {
        const bool seen = (!causal_ || s <= t) && static_cast<double>(s) < lengths[std::size_t(b)];
        double score = -std::numeric_limits<double>::infinity();
        if (seen) score = dot(x, at(b, t, h, 0, T, D), at(b, s, h, 1, T, D), D);
        sum += p[of(b, h, t, s, T)] = std::exp(score / std::sqrt(double(D)));
      }
      for (std::int64_t s = 0; s < T; ++s) {
        p[of(b, h, t, s, T)] /= sum;
        for (std::int64_t d = 0; d < D; ++d)
          out[std::size_t(((b * T + t) * heads_ + h) * D + d)] +=
              p[of(b, h, t, s, T)] * x[at(b, s, h, 2, T, D) + std::size_t(d)];
      }
    });
    Tensor y({B, T, heads_ * D}, qkv.dtype(), qkv.device());
    Tensor probabilities({B, heads_, T, T}, qkv.dtype(), qkv.device());
    write_doubles(y, out);
    write_doubles(probabilities, p);
    saved.push(std::move(qkv));
    saved.push(std::move(probabilities));
    return y;
  }

  Tensor backward(Tensor dy, Saved& saved, const Pass&) override {
    const auto span = rank_.trace.span("attention", name_);
    const Tensor probabilities = saved.pop(), qkv = saved.pop();
    const std::int64_t B = qkv.shape()[0], T = qkv.shape()[1], D = qkv.shape()[2] / 3 / heads_;
    const std::vector<double> x = to_doubles(qkv), p = to_doubles(probabilities),
                              dout = to_doubles(dy);
    std::vector<double> dx(x.size());
    each(B, T, [&](std::int64_t b, std::int64_t h, std::int64_t t) {
      const auto row = std::size_t(((b * T + t) * heads_ + h) * D);
      std::vector<double> dp(std::size_t(T), 0.0);
      double sum = 0;
      for (std::int64_t s = 0; s < T; ++s)
        for (std::int64_t d = 0; d < D; ++d) {
          const double g = dout[row + std::size_t(d)];
          dp[std::size_t(s)] += g * x[at(b, s, h, 2, T, D) + std::size_t(d)];
          dx[at(b, s, h, 2, T, D) + std::size_t(d)] += g * p[of(b, h, t, s, T)];
        }
      for (std::int64_t s = 0; s < T; ++s) sum += p[of(b, h, t, s, T)] * dp[std::size_t(s)];
      for (std::int64_t s = 0; s < T; ++s) {
        const double ds = p[of(b, h, t, s, T)] * (dp[std::size_t(s)] - sum) / std::sqrt(double(D));
        for (std::int64_t d = 0; d < D; ++d) {
          dx[at(b, t, h, 0, T, D) + std::size_t(d)] +=
              ds * x[at(b, s, h, 1, T, D) + std::size_t(d)];
          dx[at(b, s, h, 1, T, D) + std::size_t(d)] +=
              ds * x[at(b, t, h, 0, T, D) + std::size_t(d)];
        }
      }
    });
    Tensor dqkv(qkv.shape(), qkv.dtype(), qkv.device());
    write_doubles(dqkv, dx);
    return dqkv;
  }

 private:
  // Where query (0), key (1) or value (2) of a token and head begin in qkv.
  std::size_t at(std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t which, std::int64_t T,
                 std::int64_t D) const {
    return static_cast<std::size_t>((((b * T + t) * heads_ + h) * 3 + which) * D);
  }
  std::size_t of(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t s,
                 std::int64_t T) const {
    return static_cast<std::size_t>(((b * heads_ + h) * T + t) * T + s);
  }
  static double dot(const std::vector<double>& x, std::size_t i, std::size_t j, std::int64_t D) {
    double sum = 0;
    for (std::int64_t d = 0; d < D; ++d) sum += x[i + std::size_t(d)] * x[j + std::size_t(d)];
    return sum;
  }
  template <class F>
  void each(std::int64_t B, std::int64_t T, F&& f) const {
    for (std::int64_t b = 0; b < B; ++b)
      for (std::int64_t h = 0; h < heads_; ++h)
        for (std::int64_t t = 0; t < T; ++t) f(b, h, t);
  }

  std::int64_t heads_;
  bool causal_;
};

}  // namespace aisc
