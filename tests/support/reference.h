// What every operation of ops.h computes, said as plainly as C++ can: one formula, the most obvious
// loops, all in double. The oracle of the tests, and the place to read what an operation is before
// reading how it is made fast. Nothing here blocks, vectorises, shares work among threads or
// rounds: tests widen their tensors to arrays of doubles first.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "common/ops/ops.h"

namespace aisc::reference {

using Index = std::int64_t;
using Ids = std::vector<std::int32_t>;

// Doubles under a shape: x(n, c) is element (n, c), x(i) the i-th of all, x.extent(1) the columns.
struct Array {
  explicit Array(const Shape& s, double value = 0.0)
      : shape(s), values(static_cast<std::size_t>(s.count()), value) {
    for (int d = 0; d < s.rank(); ++d) extents_[static_cast<std::size_t>(d)] = s[d];
  }

  double& operator()(auto... at) { return values[offset(at...)]; }
  double operator()(auto... at) const { return values[offset(at...)]; }
  Index extent(int d) const { return extents_[static_cast<std::size_t>(d)]; }
  Index count() const { return static_cast<Index>(values.size()); }

  Shape shape;
  std::vector<double> values;

 private:
  std::size_t offset(auto... at) const {
    Index sum = 0;
    std::size_t d = 0;
    ((sum = sum * extents_[d++] + at), ...);
    return static_cast<std::size_t>(sum);
  }
  std::array<Index, Shape::kMaxRank> extents_{};
};

// The array whose element i is f(x_i), or f(x_i, y_i).
Array map(Array x, auto f) {
  for (double& value : x.values) value = f(value);
  return x;
}
Array map(Array x, const Array& y, auto f) {
  for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] = f(x.values[i], y.values[i]);
  return x;
}

// ---- products -----------------------------------------------------------------------------------

// out(z, m, n) = sum over k of op(a)(z, m, k) op(b)(z, k, n); Z is the batch, 1 for matrices.
inline Array matmul(const Array& a, const Array& b, ops::Transpose transpose) {
  const bool first = transpose == ops::Transpose::First;
  const bool second = transpose == ops::Transpose::Second;
  const Index Z = a.extent(0), K = a.extent(first ? 1 : 2);
  const Index M = a.extent(first ? 2 : 1), N = b.extent(second ? 1 : 2);
  Array out({Z, M, N});
  for (Index z = 0; z < Z; ++z)
    for (Index m = 0; m < M; ++m)
      for (Index n = 0; n < N; ++n) {
        double sum = 0;
        for (Index k = 0; k < K; ++k)
          sum += (first ? a(z, k, m) : a(z, m, k)) * (second ? b(z, n, k) : b(z, k, n));
        out(z, m, n) = sum;
      }
  return out;
}

// ---- element by element -------------------------------------------------------------------------

inline Array add(const Array& a, const Array& b) {
  return map(a, b, [](double x, double y) { return x + y; });
}

inline Array scale(const Array& x, double factor) {
  return map(x, [=](double value) { return factor * value; });
}

// out(n, c) = x(n, c) + bias(c)
inline Array add_bias(const Array& x, const Array& bias) {
  Array out = x;
  for (Index n = 0; n < x.extent(0); ++n)
    for (Index c = 0; c < x.extent(1); ++c) out(n, c) += bias(c);
  return out;
}

// dbias(c) = sum over n of dy(n, c)
inline Array add_bias_backward(const Array& dy) {
  Array dbias({dy.extent(1)});
  for (Index n = 0; n < dy.extent(0); ++n)
    for (Index c = 0; c < dy.extent(1); ++c) dbias(c) += dy(n, c);
  return dbias;
}

// out[i0, i1, ..] = x[..] with out's dimension d being x's dimension order[d].
inline Array permute(const Array& x, const std::array<int, 4>& order) {
  const int rank = x.shape.rank();
  Shape shape = x.shape;
  for (int d = 0; d < rank; ++d) shape = shape.with(d, x.extent(order.at(d)));
  Array out(shape);
  for (Index i = 0; i < out.count(); ++i) {
    std::array<Index, 4> at{};  // where x holds element i, by dimension of x
    Index rest = i, from = 0;
    for (int d = rank - 1; d >= 0; rest /= out.extent(d--))
      at.at(order.at(d)) = rest % out.extent(d);
    for (int d = 0; d < rank; ++d) from = from * x.extent(d) + at.at(d);
    out(i) = x(from);
  }
  return out;
}

inline Array relu(const Array& x) {
  return map(x, [](double value) { return value < 0 ? 0 : value; });  // a NaN stays a NaN
}

inline Array relu_backward(const Array& dy, const Array& x) {
  return map(dy, x, [](double gradient, double value) { return value > 0 ? gradient : 0; });
}

inline constexpr double kGeluCubic = 0.044715;

// y = x/2 (1 + tanh u),  u = sqrt(2/pi) (x + 0.044715 x^3)
inline Array gelu(const Array& x) {
  return map(x, [](double v) {
    const double u = std::sqrt(2 / std::numbers::pi) * (v + kGeluCubic * v * v * v);
    return 0.5 * v * (1 + std::tanh(u));
  });
}

// dy/dx = (1 + tanh u)/2 + x/2 (1 - tanh^2 u) du/dx,  du/dx = sqrt(2/pi) (1 + 3 * 0.044715 x^2)
inline Array gelu_backward(const Array& dy, const Array& x) {
  return map(dy, x, [](double gradient, double v) {
    const double root = std::sqrt(2 / std::numbers::pi);
    const double t = std::tanh(root * (v + kGeluCubic * v * v * v));
    const double slope = root * (1 + 3 * kGeluCubic * v * v);
    return gradient * (0.5 * (1 + t) + 0.5 * v * (1 - t * t) * slope);
  });
}

// y_i = x_i / (1 - rate) where the i-th random number is at least `rate`, else 0.
inline Array dropout(const Array& x, double rate, const Philox& random, std::uint64_t first_index) {
  Array y = x;
  for (std::size_t i = 0; i < y.values.size(); ++i)
    y.values[i] = random.uniform(first_index + i) >= rate ? x.values[i] / (1 - rate) : 0;
  return y;
}

// ---- rows ---------------------------------------------------------------------------------------

struct LayerNorm {
  Array y, mean, rstd;
};

// mean = sum x / C,  rstd = 1 / sqrt(sum (x - mean)^2 / C + epsilon),
// y(n, c) = (x(n, c) - mean(n)) rstd(n) weight(c) + bias(c)
inline LayerNorm layer_norm(const Array& x, const Array& weight, const Array& bias,
                            double epsilon) {
  const Index N = x.extent(0), C = x.extent(1);
  LayerNorm out{Array({N, C}), Array({N}), Array({N})};
  for (Index n = 0; n < N; ++n) {
    double mean = 0, variance = 0;
    for (Index c = 0; c < C; ++c) mean += x(n, c) / static_cast<double>(C);
    for (Index c = 0; c < C; ++c)
      variance += (x(n, c) - mean) * (x(n, c) - mean) / static_cast<double>(C);
    const double rstd = 1 / std::sqrt(variance + epsilon);
    for (Index c = 0; c < C; ++c) out.y(n, c) = (x(n, c) - mean) * rstd * weight(c) + bias(c);
    out.mean(n) = mean;
    out.rstd(n) = rstd;
  }
  return out;
}

struct LayerNormGradients {
  Array dx, dweight, dbias;
};

// With h = (x - mean) rstd, the normalised input, and g(c) = dy(c) weight(c), its gradient:
// dx = rstd (g - average(g) - h average(g h)),  dweight = sum over n of dy h,  dbias = sum of dy
inline LayerNormGradients layer_norm_backward(const Array& dy, const Array& x, const Array& weight,
                                              const Array& mean, const Array& rstd) {
  const Index N = x.extent(0), C = x.extent(1);
  LayerNormGradients out{Array({N, C}), Array({C}), Array({C})};
  for (Index n = 0; n < N; ++n) {
    const auto h = [&](Index c) { return (x(n, c) - mean(n)) * rstd(n); };
    double g_average = 0, gh_average = 0;
    for (Index c = 0; c < C; ++c) {
      g_average += dy(n, c) * weight(c) / static_cast<double>(C);
      gh_average += dy(n, c) * weight(c) * h(c) / static_cast<double>(C);
      out.dweight(c) += dy(n, c) * h(c);
      out.dbias(c) += dy(n, c);
    }
    for (Index c = 0; c < C; ++c)
      out.dx(n, c) = rstd(n) * (dy(n, c) * weight(c) - g_average - h(c) * gh_average);
  }
  return out;
}

inline double max_of_row(const Array& x, Index n, Index C) {
  double largest = -INFINITY;
  for (Index c = 0; c < C; ++c) largest = std::max(largest, x(n, c));
  return largest;
}

// log(sum over c < C of exp x(n, c)); the largest is taken out first, so that nothing overflows.
inline double log_sum_exp(const Array& x, Index n, Index C) {
  const double largest = max_of_row(x, n, C);
  double sum = 0;
  for (Index c = 0; c < C; ++c) sum += std::exp(x(n, c) - largest);
  return largest + std::log(sum);
}

// y(n, c) = exp x(n, c) / sum over j of exp x(n, j)
inline Array softmax(const Array& x) {
  Array y = x;
  for (Index n = 0; n < x.extent(0); ++n) {
    const double largest = max_of_row(x, n, x.extent(1));
    double sum = 0;
    for (Index c = 0; c < x.extent(1); ++c) sum += y(n, c) = std::exp(x(n, c) - largest);
    for (Index c = 0; c < x.extent(1); ++c) y(n, c) /= sum;
  }
  return y;
}

// dx(n, c) = y(n, c) (dy(n, c) - sum over j of dy(n, j) y(n, j))
inline Array softmax_backward(const Array& dy, const Array& y) {
  Array dx = y;
  for (Index n = 0; n < y.extent(0); ++n) {
    double dot = 0;
    for (Index c = 0; c < y.extent(1); ++c) dot += dy(n, c) * y(n, c);
    for (Index c = 0; c < y.extent(1); ++c) dx(n, c) = y(n, c) * (dy(n, c) - dot);
  }
  return dx;
}

// ---- attention ----------------------------------------------------------------------------------

// Head h of sample b in qkv (B, T, 3 H D): part 0 is the query, 1 the key, 2 the value.
inline Array head(const Array& qkv, Index b, Index h, Index part, Index D) {
  Array out({qkv.extent(1), D});
  for (Index t = 0; t < qkv.extent(1); ++t)
    for (Index d = 0; d < D; ++d) out(t, d) = qkv(b, t, (3 * h + part) * D + d);
  return out;
}

// s(t, j) = q(t) . k(j) / sqrt D for j <= t, minus infinity for what token t must not see.
inline Array causal_scores(const Array& q, const Array& k) {
  const Index T = q.extent(0), D = q.extent(1);
  Array s({T, T}, -INFINITY);
  for (Index t = 0; t < T; ++t)
    for (Index j = 0; j <= t; ++j) {
      s(t, j) = 0;
      for (Index d = 0; d < D; ++d) s(t, j) += q(t, d) * k(j, d) / std::sqrt(double(D));
    }
  return s;
}

struct Attention {
  Array out, log_sum_exp;
};

// For every sample and head: P = softmax(causal scores), out = P V. Materialises P (T, T).
inline Attention causal_attention(const Array& qkv, Index H) {
  const Index B = qkv.extent(0), T = qkv.extent(1), D = qkv.extent(2) / (3 * H);
  Attention result{Array({B, T, H * D}), Array({B, H, T})};
  for (Index b = 0; b < B; ++b)
    for (Index h = 0; h < H; ++h) {
      const Array v = head(qkv, b, h, 2, D);
      const Array s = causal_scores(head(qkv, b, h, 0, D), head(qkv, b, h, 1, D));
      const Array p = softmax(s);
      for (Index t = 0; t < T; ++t) {
        result.log_sum_exp(b, h, t) = log_sum_exp(s, t, T);
        for (Index j = 0; j < T; ++j)
          for (Index d = 0; d < D; ++d) result.out(b, t, h * D + d) += p(t, j) * v(j, d);
      }
    }
  return result;
}

// The chain rule through out = P V, P = softmax S, S = Q K^T / sqrt D:
// dV = P^T dO,  dP = dO V^T,  dS = softmax_backward(dP, P),  dQ = dS K / sqrt D,  dK = dS^T Q /
// sqrt D
inline Array causal_attention_backward(const Array& dout, const Array& qkv, Index H) {
  const Index B = qkv.extent(0), T = qkv.extent(1), D = qkv.extent(2) / (3 * H);
  const double root = std::sqrt(double(D));
  Array dqkv(qkv.shape);
  for (Index b = 0; b < B; ++b)
    for (Index h = 0; h < H; ++h) {
      const Array q = head(qkv, b, h, 0, D), k = head(qkv, b, h, 1, D), v = head(qkv, b, h, 2, D);
      const Array p = softmax(causal_scores(q, k));
      const Index query = 3 * h * D, key = query + D, value = key + D;  // columns of dqkv
      Array dp({T, T});
      for (Index t = 0; t < T; ++t)
        for (Index j = 0; j < T; ++j)
          for (Index d = 0; d < D; ++d) {
            dp(t, j) += dout(b, t, h * D + d) * v(j, d);
            dqkv(b, j, value + d) += p(t, j) * dout(b, t, h * D + d);
          }
      const Array ds = softmax_backward(dp, p);
      for (Index t = 0; t < T; ++t)
        for (Index j = 0; j < T; ++j)
          for (Index d = 0; d < D; ++d) {
            dqkv(b, t, query + d) += ds(t, j) * k(j, d) / root;
            dqkv(b, j, key + d) += ds(t, j) * q(t, d) / root;
          }
    }
  return dqkv;
}

// ---- tables and classes -------------------------------------------------------------------------

// out(n, c) = table(ids[n], c)
inline Array embedding(const Array& table, const Ids& ids) {
  Array out({static_cast<Index>(ids.size()), table.extent(1)});
  for (Index n = 0; n < out.extent(0); ++n)
    for (Index c = 0; c < out.extent(1); ++c)
      out(n, c) = table(ids[static_cast<std::size_t>(n)], c);
  return out;
}

// dtable(v, c) = sum over the n with ids[n] = v of dout(n, c)
inline Array embedding_backward(const Array& dout, const Ids& ids, Index V) {
  Array dtable({V, dout.extent(1)});
  for (std::size_t n = 0; n < ids.size(); ++n)
    for (Index c = 0; c < dout.extent(1); ++c) dtable(ids[n], c) += dout(n, c);
  return dtable;
}

struct CrossEntropy {
  Array losses, log_sum_exp;
};

// loss(n) = log(sum over classes of exp logits(n, c)) - logits(n, target); 0 for target -1.
inline CrossEntropy cross_entropy(const Array& logits, const Ids& targets, Index classes) {
  const Index N = logits.extent(0);
  CrossEntropy out{Array({N}), Array({N})};
  for (Index n = 0; n < N; ++n) {
    const Index target = targets[static_cast<std::size_t>(n)];
    out.log_sum_exp(n) = log_sum_exp(logits, n, classes);
    out.losses(n) = target < 0 ? 0 : out.log_sum_exp(n) - logits(n, target);
  }
  return out;
}

// dlogits(n, c) = factor (softmax(n, c) - [c = target]), 0 in padding and in rows without a target.
inline Array cross_entropy_backward(const Array& logits, const Ids& targets, Index classes,
                                    double factor) {
  Array dlogits(logits.shape);
  for (Index n = 0; n < logits.extent(0); ++n) {
    const Index target = targets[static_cast<std::size_t>(n)];
    if (target < 0) continue;
    const double normaliser = log_sum_exp(logits, n, classes);
    for (Index c = 0; c < classes; ++c)
      dlogits(n, c) = factor * (std::exp(logits(n, c) - normaliser) - (c == target ? 1 : 0));
  }
  return dlogits;
}

// ---- optimizers ---------------------------------------------------------------------------------

inline double sum_of_squares(const Array& x) {
  double sum = 0;
  for (const double value : x.values) sum += value * value;
  return sum;
}

// g = gradient_scale * gradient;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
// w = w - lr (m' / (sqrt v' + epsilon) + decay w)  with  m' = m / (1 - beta1^t), v' = v / (1 -
// beta2^t)
inline void adamw(Array& weight, Array& m, Array& v, const Array& gradient,
                  const ops::AdamWStep& step) {
  const double t = static_cast<double>(step.step);
  for (Index i = 0; i < weight.count(); ++i) {
    const double g = step.gradient_scale * gradient(i);
    m(i) = step.beta1 * m(i) + (1 - step.beta1) * g;
    v(i) = step.beta2 * v(i) + (1 - step.beta2) * g * g;
    const double m_hat = m(i) / (1 - std::pow(step.beta1, t));
    const double v_hat = v(i) / (1 - std::pow(step.beta2, t));
    weight(i) -= step.learning_rate *
                 (m_hat / (std::sqrt(v_hat) + step.epsilon) + step.weight_decay * weight(i));
  }
}

// velocity = momentum velocity + g + decay w;  w = w - lr velocity
inline void sgd(Array& weight, Array& velocity, const Array& gradient, const ops::SgdStep& step) {
  for (Index i = 0; i < weight.count(); ++i) {
    const double g = step.gradient_scale * gradient(i) + step.weight_decay * weight(i);
    velocity(i) = step.momentum * velocity(i) + g;
    weight(i) -= step.learning_rate * velocity(i);
  }
}

}  // namespace aisc::reference
