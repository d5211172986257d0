// What every operation of ops.h computes, said as plainly as C++ can: one formula, the most obvious
// loops (in reference.cpp), all in double. The oracle of the tests, and the place to read what an
// operation is before reading how it is made fast. Nothing here blocks, vectorises, shares work
// among threads or rounds: tests widen their tensors to arrays of doubles first.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/ops/ops.h"

namespace aisc::reference {

using Index = std::int64_t;
using Ids = std::vector<std::int32_t>;

// Doubles under a shape: x(n, c) is element (n, c), x(i) the i-th of all, x.extent(1) the columns.
// Elements are reached inline: else the linker may give the loops here a test's copy of operator(),
// which is not optimized.
struct Array {
  explicit Array(const Shape& s, double value = 0.0)
      : shape(s), values(static_cast<std::size_t>(s.count()), value) {
    for (int d = 0; d < s.rank(); ++d) extents_[static_cast<std::size_t>(d)] = s[d];
  }

  [[gnu::always_inline]] double& operator()(auto... at) { return values[offset(at...)]; }
  [[gnu::always_inline]] double operator()(auto... at) const { return values[offset(at...)]; }
  Index extent(int d) const { return extents_[static_cast<std::size_t>(d)]; }
  Index count() const { return static_cast<Index>(values.size()); }

  Shape shape;
  std::vector<double> values;

 private:
  [[gnu::always_inline]] std::size_t offset(auto... at) const {
    Index sum = 0;
    std::size_t d = 0;
    ((sum = sum * extents_[d++] + at), ...);
    return static_cast<std::size_t>(sum);
  }
  std::array<Index, Shape::kMaxRank> extents_{};
};

// ---- products -----------------------------------------------------------------------------------

// out(z, m, n) = sum over k of op(a)(z, m, k) op(b)(z, k, n); Z is the batch, 1 for matrices.
Array matmul(const Array& a, const Array& b, ops::Transpose transpose);

// ---- element by element -------------------------------------------------------------------------

Array add(const Array& a, const Array& b);
Array scale(const Array& x, double factor);

// out(n, c) = x(n, c) + bias(c)
Array add_bias(const Array& x, const Array& bias);

// dbias(c) = sum over n of dy(n, c)
Array add_bias_backward(const Array& dy);

// out[i0, i1, ..] = x[..] with out's dimension d being x's dimension order[d].
Array permute(const Array& x, const std::array<int, 4>& order);

Array relu(const Array& x);
Array relu_backward(const Array& dy, const Array& x);

// y = x/2 (1 + tanh u),  u = sqrt(2/pi) (x + 0.044715 x^3)
Array gelu(const Array& x);

// dy/dx = (1 + tanh u)/2 + x/2 (1 - tanh^2 u) du/dx,  du/dx = sqrt(2/pi) (1 + 3 * 0.044715 x^2)
Array gelu_backward(const Array& dy, const Array& x);

// y = x Phi(x),  Phi(x) = (1 + erf(x / sqrt 2))/2
Array erf_gelu(const Array& x);

// dy/dx = Phi(x) + x exp(-x^2/2) / sqrt(2 pi)
Array erf_gelu_backward(const Array& dy, const Array& x);

// y_i = x_i / (1 - rate) where the i-th random number is at least `rate`, else 0.
Array dropout(const Array& x, double rate, const Philox& random, std::uint64_t first_index);

// ---- rows ---------------------------------------------------------------------------------------

struct LayerNorm {
  Array y, mean, rstd;
};

// mean = sum x / C,  rstd = 1 / sqrt(sum (x - mean)^2 / C + epsilon),
// y(n, c) = (x(n, c) - mean(n)) rstd(n) weight(c) + bias(c)
LayerNorm layer_norm(const Array& x, const Array& weight, const Array& bias, double epsilon);

struct LayerNormGradients {
  Array dx, dweight, dbias;
};

// With h = (x - mean) rstd, the normalised input, and g(c) = dy(c) weight(c), its gradient:
// dx = rstd (g - average(g) - h average(g h)),  dweight = sum over n of dy h,  dbias = sum of dy
LayerNormGradients layer_norm_backward(const Array& dy, const Array& x, const Array& weight,
                                       const Array& mean, const Array& rstd);

// log(sum over c < C of exp x(n, c)); the largest is taken out first, so that nothing overflows.
double log_sum_exp(const Array& x, Index n, Index C);

// y(n, c) = exp x(n, c) / sum over j of exp x(n, j)
Array softmax(const Array& x);

// dx(n, c) = y(n, c) (dy(n, c) - sum over j of dy(n, j) y(n, j))
Array softmax_backward(const Array& dy, const Array& y);

// ---- attention ----------------------------------------------------------------------------------

struct Attention {
  Array out, log_sum_exp;
};

// For every sample and head: P = softmax(causal scores), out = P V. Materialises P (T, T).
Attention causal_attention(const Array& qkv, Index H);

// The chain rule through out = P V, P = softmax S, S = Q K^T / sqrt D:
// dV = P^T dO,  dP = dO V^T,  dS = softmax_backward(dP, P),  dQ = dS K / sqrt D,  dK = dS^T Q /
// sqrt D
Array causal_attention_backward(const Array& dout, const Array& qkv, Index H);

// ---- tables and classes -------------------------------------------------------------------------

// out(n, c) = table(ids[n], c)
Array embedding(const Array& table, const Ids& ids);

// dtable(v, c) = sum over the n with ids[n] = v of dout(n, c)
Array embedding_backward(const Array& dout, const Ids& ids, Index V);

struct CrossEntropy {
  Array losses, log_sum_exp;
};

// loss(n) = log(sum over classes of exp logits(n, c)) - logits(n, target); 0 for target -1. With
// smoothing the mean over all classes as targets has that share of it.
CrossEntropy cross_entropy(const Array& logits, const Ids& targets, Index classes,
                           double smoothing = 0);

// dlogits(n, c) = factor (softmax(n, c) - (1 - smoothing) [c = target] - smoothing / classes), 0 in
// padding and in rows without a target.
Array cross_entropy_backward(const Array& logits, const Ids& targets, Index classes, double factor,
                             double smoothing = 0);

// ---- optimizers ---------------------------------------------------------------------------------

double sum_of_squares(const Array& x);

// g = gradient_scale * gradient;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
// w = w - lr (m' / (sqrt v' + epsilon) + decay w)  with  m' = m / (1 - beta1^t), v' = v / (1 -
// beta2^t)
void adamw(Array& weight, Array& m, Array& v, const Array& gradient, const ops::AdamWStep& step);

// velocity = momentum velocity + g + decay w;  w = w - lr velocity
void sgd(Array& weight, Array& velocity, const Array& gradient, const ops::SgdStep& step);

}  // namespace aisc::reference
