// The formulas of reference.h, as loops. Compiled with optimization where the tests are not.
#include "tests/support/reference.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace aisc::reference {
namespace {

// The array whose element i is f(x_i), or f(x_i, y_i).
Array map(Array x, auto f) {
  for (double& value : x.values) value = f(value);
  return x;
}
Array map(Array x, const Array& y, auto f) {
  for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] = f(x.values[i], y.values[i]);
  return x;
}

constexpr double kGeluCubic = 0.044715;

double max_of_row(const Array& x, Index n, Index C) {
  double largest = -INFINITY;
  for (Index c = 0; c < C; ++c) largest = std::max(largest, x(n, c));
  return largest;
}

// Head h of sample b in qkv (B, T, 3 H D): part 0 is the query, 1 the key, 2 the value.
Array head(const Array& qkv, Index b, Index h, Index part, Index D) {
  Array out({qkv.extent(1), D});
  for (Index t = 0; t < qkv.extent(1); ++t)
    for (Index d = 0; d < D; ++d) out(t, d) = qkv(b, t, (3 * h + part) * D + d);
  return out;
}

// s(t, j) = q(t) . k(j) / sqrt D for j <= t, minus infinity for what token t must not see.
Array causal_scores(const Array& q, const Array& k) {
  const Index T = q.extent(0), D = q.extent(1);
  Array s({T, T}, -INFINITY);
  for (Index t = 0; t < T; ++t)
    for (Index j = 0; j <= t; ++j) {
      s(t, j) = 0;
      for (Index d = 0; d < D; ++d) s(t, j) += q(t, d) * k(j, d) / std::sqrt(double(D));
    }
  return s;
}

}  // namespace

// ---- products -----------------------------------------------------------------------------------

Array matmul(const Array& a, const Array& b, ops::Transpose transpose) {
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

Array add(const Array& a, const Array& b) {
  return map(a, b, [](double x, double y) { return x + y; });
}

Array scale(const Array& x, double factor) {
  return map(x, [=](double value) { return factor * value; });
}

Array add_bias(const Array& x, const Array& bias) {
  Array out = x;
  for (Index n = 0; n < x.extent(0); ++n)
    for (Index c = 0; c < x.extent(1); ++c) out(n, c) += bias(c);
  return out;
}

Array add_bias_backward(const Array& dy) {
  Array dbias({dy.extent(1)});
  for (Index n = 0; n < dy.extent(0); ++n)
    for (Index c = 0; c < dy.extent(1); ++c) dbias(c) += dy(n, c);
  return dbias;
}

Array permute(const Array& x, const std::array<int, 4>& order) {
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

Array relu(const Array& x) {
  return map(x, [](double value) { return value < 0 ? 0 : value; });  // a NaN stays a NaN
}

Array relu_backward(const Array& dy, const Array& x) {
  return map(dy, x, [](double gradient, double value) { return value > 0 ? gradient : 0; });
}

Array gelu(const Array& x) {
  return map(x, [](double v) {
    const double u = std::sqrt(2 / std::numbers::pi) * (v + kGeluCubic * v * v * v);
    return 0.5 * v * (1 + std::tanh(u));
  });
}

Array gelu_backward(const Array& dy, const Array& x) {
  return map(dy, x, [](double gradient, double v) {
    const double root = std::sqrt(2 / std::numbers::pi);
    const double t = std::tanh(root * (v + kGeluCubic * v * v * v));
    const double slope = root * (1 + 3 * kGeluCubic * v * v);
    return gradient * (0.5 * (1 + t) + 0.5 * v * (1 - t * t) * slope);
  });
}

Array erf_gelu(const Array& x) {
  return map(x, [](double v) { return 0.5 * v * (1 + std::erf(v / std::numbers::sqrt2)); });
}

Array erf_gelu_backward(const Array& dy, const Array& x) {
  return map(dy, x, [](double gradient, double v) {
    const double density = std::exp(-v * v / 2) / std::sqrt(2 * std::numbers::pi);
    return gradient * (0.5 * (1 + std::erf(v / std::numbers::sqrt2)) + v * density);
  });
}

Array dropout(const Array& x, double rate, const Philox& random, std::uint64_t first_index) {
  Array y = x;
  for (std::size_t i = 0; i < y.values.size(); ++i)
    y.values[i] = random.uniform(first_index + i) >= rate ? x.values[i] / (1 - rate) : 0;
  return y;
}

// ---- rows ---------------------------------------------------------------------------------------

LayerNorm layer_norm(const Array& x, const Array& weight, const Array& bias, double epsilon) {
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

LayerNormGradients layer_norm_backward(const Array& dy, const Array& x, const Array& weight,
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

double log_sum_exp(const Array& x, Index n, Index C) {
  const double largest = max_of_row(x, n, C);
  double sum = 0;
  for (Index c = 0; c < C; ++c) sum += std::exp(x(n, c) - largest);
  return largest + std::log(sum);
}

Array softmax(const Array& x) {
  Array y = x;
  for (Index n = 0; n < x.extent(0); ++n) {
    const double largest = max_of_row(x, n, x.extent(1));
    double sum = 0;
    for (Index c = 0; c < x.extent(1); ++c) sum += y(n, c) = std::exp(x(n, c) - largest);
    for (Index c = 0; c < x.extent(1); ++c) y(n, c) /= sum;
  }
  return y;
}

Array softmax_backward(const Array& dy, const Array& y) {
  Array dx = y;
  for (Index n = 0; n < y.extent(0); ++n) {
    double dot = 0;
    for (Index c = 0; c < y.extent(1); ++c) dot += dy(n, c) * y(n, c);
    for (Index c = 0; c < y.extent(1); ++c) dx(n, c) = y(n, c) * (dy(n, c) - dot);
  }
  return dx;
}

// ---- attention ----------------------------------------------------------------------------------

Attention causal_attention(const Array& qkv, Index H) {
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

Array causal_attention_backward(const Array& dout, const Array& qkv, Index H) {
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

Array embedding(const Array& table, const Ids& ids) {
  Array out({static_cast<Index>(ids.size()), table.extent(1)});
  for (Index n = 0; n < out.extent(0); ++n)
    for (Index c = 0; c < out.extent(1); ++c)
      out(n, c) = table(ids[static_cast<std::size_t>(n)], c);
  return out;
}

Array embedding_backward(const Array& dout, const Ids& ids, Index V) {
  Array dtable({V, dout.extent(1)});
  for (std::size_t n = 0; n < ids.size(); ++n)
    for (Index c = 0; c < dout.extent(1); ++c) dtable(ids[n], c) += dout(n, c);
  return dtable;
}

CrossEntropy cross_entropy(const Array& logits, const Ids& targets, Index classes,
                           double smoothing) {
  const Index N = logits.extent(0);
  CrossEntropy out{Array({N}), Array({N})};
  for (Index n = 0; n < N; ++n) {
    const Index target = targets[static_cast<std::size_t>(n)];
    out.log_sum_exp(n) = log_sum_exp(logits, n, classes);
    out.losses(n) = target < 0 ? 0 : out.log_sum_exp(n) - logits(n, target);
    if (smoothing == 0 || target < 0) continue;
    double mean = 0;
    for (Index c = 0; c < classes; ++c)
      mean += (out.log_sum_exp(n) - logits(n, c)) / static_cast<double>(classes);
    out.losses(n) = (1 - smoothing) * out.losses(n) + smoothing * mean;
  }
  return out;
}

Array cross_entropy_backward(const Array& logits, const Ids& targets, Index classes, double factor,
                             double smoothing) {
  Array dlogits(logits.shape);
  for (Index n = 0; n < logits.extent(0); ++n) {
    const Index target = targets[static_cast<std::size_t>(n)];
    if (target < 0) continue;
    const double normaliser = log_sum_exp(logits, n, classes);
    for (Index c = 0; c < classes; ++c)
      dlogits(n, c) =
          factor * (std::exp(logits(n, c) - normaliser) - (1 - smoothing) * (c == target ? 1 : 0) -
                    smoothing / static_cast<double>(classes));
  }
  return dlogits;
}

// ---- optimizers ---------------------------------------------------------------------------------

double sum_of_squares(const Array& x) {
  double sum = 0;
  for (const double value : x.values) sum += value * value;
  return sum;
}

void adamw(Array& weight, Array& m, Array& v, const Array& gradient, const ops::AdamWStep& step) {
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

void sgd(Array& weight, Array& velocity, const Array& gradient, const ops::SgdStep& step) {
  for (Index i = 0; i < weight.count(); ++i) {
    const double g = step.gradient_scale * gradient(i) + step.weight_decay * weight(i);
    velocity(i) = step.momentum * velocity(i) + g;
    weight(i) -= step.learning_rate * velocity(i);
  }
}

}  // namespace aisc::reference
