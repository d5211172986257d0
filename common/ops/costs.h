// What each operation of ops.h costs: the arithmetic of its formula, and the bytes that it must
// read and write at least. Which of two a machine is slower at, and what it reaches of its peak, is
// the machine's (common/model/machine.h).
//
// An addition, a multiplication, an exponential count 1 each; integer work (dropout's random bits)
// counts, too. A tensor that is added to is read and written. What a product does beside itself
// (bias, GELU) runs in its shadow and is not counted; attention counts whole matrices of scores, as
// all published figures do (Chowdhery et al., "PaLM", 2022, appendix B), although its kernels leave
// out what lies in the future. With both the products of a step of training are
// GptConfig::flops_per_token, exactly.
#pragma once

#include <algorithm>

#include "common/ops/ops.h"

namespace aisc::ops::costs {

inline double number(std::int64_t n) { return static_cast<double>(n); }

// Of tensors that are read or written once.
template <class... Views>
inline double bytes(const Views&... views) {
  return (static_cast<double>(views.bytes()) + ...);
}
inline double again(const ConstView& added_to, Into into) {
  return into == Into::Accumulate ? bytes(added_to) : 0;
}

// Of so many operations an element of `x`.
inline OpCost each(double flops, const ConstView& x, double moved) {
  return {.flops = flops * number(x.count()), .bytes = moved, .dtype = x.dtype()};
}

// Both products of attention take 4 C FLOPs a pair; so many pairs a sample of out (B, T, C).
inline OpCost attention_of(double pairs, const ConstView& out, double moved) {
  return {.flops = pairs * 4 * number(out.shape()[0] * out.shape()[2]),
          .bytes = moved,
          .dtype = out.dtype(),
          .product = true};
}

inline double square(std::int64_t n) { return number(n) * number(n); }

inline OpCost matmul(const View& out, const ConstView& a, const ConstView& b,
                     const MatmulOptions& o) {
  const std::int64_t K = a.shape()[o.transpose == Transpose::First ? -2 : -1];
  return {.flops = 2 * number(out.count()) * number(K),
          .bytes = bytes(out, a, b, o.bias, o.before_gelu, o.gelu_of) + again(out, o.into),
          .dtype = a.dtype(),
          .product = true};
}

inline OpCost fill(const View& out, const double&) { return each(0, out, bytes(out)); }
inline OpCost cast(const View& out, const ConstView& x) { return each(1, x, bytes(out, x)); }
inline OpCost add(const View& out, const ConstView& a, const ConstView& b) {
  return each(1, a, bytes(out, a, b));
}
inline OpCost scale(const View& out, const ConstView& x, const double&) {
  return each(1, x, bytes(out, x));
}
inline OpCost add_bias(const View& out, const ConstView& x, const ConstView& bias) {
  return each(1, x, bytes(out, x, bias));
}
inline OpCost add_bias_backward(const View& dbias, const ConstView& dy, const Into& into) {
  return each(1, dy, bytes(dbias, dy) + again(dbias, into));
}
inline OpCost permute(const View& out, const ConstView& x, const std::array<int, 4>&) {
  return each(0, x, bytes(out, x));
}
inline OpCost relu(const View& y, const ConstView& x) { return each(1, x, bytes(y, x)); }
inline OpCost relu_backward(const View& dx, const ConstView& dy, const ConstView& x) {
  return each(1, x, bytes(dx, dy, x));
}
// x/2 (1 + tanh(a (x + b x^3))): 9. x/2 (1 + erf(a x)): 5.
inline OpCost gelu(const View& y, const ConstView& x, const Gelu& form) {
  return each(form == Gelu::Tanh ? 9 : 5, x, bytes(y, x));
}
// The same again without its last two, and dy ((1 + t)/2 + x/2 (1 - t^2) a (1 + 3 b x^2)). Or dy
// (1/2 (1 + erf(a x)) + x b exp(-x^2 / 2)): 11.
inline OpCost gelu_backward(const View& dx, const ConstView& dy, const ConstView& x,
                            const Gelu& form) {
  return each(form == Gelu::Tanh ? 17 : 11, x, bytes(dx, dy, x));
}
// Exponential, sum, quotient.
inline OpCost sigmoid(const View& y, const ConstView& x) { return each(3, x, bytes(y, x)); }
// dy y (1 - y).
inline OpCost sigmoid_backward(const View& dx, const ConstView& dy, const ConstView& y) {
  return each(3, y, bytes(dx, dy, y));
}
// Of Philox four bits come from ten rounds of two products, two exclusive ors and two keys.
inline OpCost dropout(const View& y, const ConstView& x, const double&, const Philox&,
                      const std::uint64_t&, const View& mask) {
  return each(17, x, bytes(y, x, mask));
}
inline OpCost dropout_backward(const View& dx, const ConstView& dy, const ConstView& mask,
                               const double&) {
  return each(1, dy, bytes(dx, dy, mask));
}

// Sum; difference, square, sum; difference, rstd, weight, bias.
inline OpCost layer_norm(const View& y, const View& mean, const View& rstd, const ConstView& x,
                         const ConstView& weight, const ConstView& bias, const double&) {
  return each(8, x, bytes(y, mean, rstd, x, weight, bias));
}
// The normalized x (2), dy weight (1), its sum and that with x (3), dx from these (4), dweight (2)
// and dbias (1).
inline OpCost layer_norm_backward(const View& dx, const View& dweight, const View& dbias,
                                  const ConstView& dy, const ConstView& x, const ConstView& weight,
                                  const ConstView& mean, const ConstView& rstd, const Into& into) {
  return each(13, x,
              bytes(dx, dweight, dbias, dy, x, weight, mean, rstd) + again(dweight, into) +
                  again(dbias, into));
}
inline OpCost scale_rows(const View& y, const ConstView& x, const ConstView& factors,
                         const Into& into) {
  return each(into == Into::Accumulate ? 2 : 1, x, bytes(y, x, factors) + again(y, into));
}
inline OpCost row_dots(const View& dots, const ConstView& a, const ConstView& b) {
  return each(2, a, bytes(dots, a, b));
}
// Maximum, difference, exponential, sum, quotient.
inline OpCost softmax(const View& y, const ConstView& x) { return each(5, x, bytes(y, x)); }
inline OpCost softmax_backward(const View& dx, const ConstView& dy, const ConstView& y) {
  return each(4, y, bytes(dx, dy, y));
}
// That, and the factor.
inline OpCost masked_softmax(const View& y, const ConstView& x, const double&,
                             const AttentionMask&) {
  return each(6, x, bytes(y, x));
}
// Sum, quotient.
inline OpCost normalize_rows(const View& y, const ConstView& x) { return each(2, x, bytes(y, x)); }
// The sum of x (1), that of dy y (2), difference and quotient (2).
inline OpCost normalize_rows_backward(const View& dx, const ConstView& dy, const ConstView& y,
                                      const ConstView& x) {
  return each(5, x, bytes(dx, dy, y, x));
}

// Each number is compared at least once.
inline OpCost top_k(const View& ids, const ConstView& x) { return each(1, x, bytes(ids, x)); }
// Of x what is taken.
inline OpCost take_columns(const View& values, const ConstView&, const ConstView& ids) {
  return each(0, values, 2 * bytes(values) + bytes(ids));
}
// Overwritten is the whole of dx; else a number is read and written for each that is added.
inline OpCost take_columns_backward(const View& dx, const ConstView& dvalues, const ConstView& ids,
                                    const Into& into) {
  const double added_to = 2 * number(dvalues.count()) * static_cast<double>(size_of(dx.dtype()));
  return each(1, dvalues, bytes(dvalues, ids) + (into == Into::Overwrite ? bytes(dx) : added_to));
}

// Model FLOPs of causal attention are those of all pairs, seen or not (Chowdhery et al., "PaLM",
// 2022, appendix B): a query is charged each key before its own twice, so that the parts of a
// sequence are charged what the whole is. Padding is charged, too.
inline double charged_pairs(const ConstView& q, const ConstView& kv, const AttentionMask& mask) {
  const std::int64_t T = q.shape()[1], K = kv.shape()[2];
  if (!mask.causal) return number(T) * number(K);
  double pairs = 0;
  for (std::int64_t t = 0; t < T; ++t) {
    const std::int64_t seen = mask.seen(t, K), position = mask.queries.position(t);
    const bool sees_its_own = seen > 0 && mask.keys.position(seen - 1) == position;
    pairs += number(2 * seen - (sees_its_own ? 1 : 0));
  }
  return pairs;
}
inline OpCost attention(const View& out, const View& log_sum_exp, const ConstView& q,
                        const ConstView& kv, const std::int64_t&, const AttentionMask& mask) {
  return attention_of(charged_pairs(q, kv, mask), out, bytes(out, log_sum_exp, q, kv));
}
// Four products; that the scores are computed again is not counted.
inline OpCost attention_backward(const View& dq, const View& dkv, const ConstView& dout,
                                 const ConstView& q, const ConstView& kv, const ConstView& out,
                                 const ConstView& log_sum_exp, const std::int64_t&,
                                 const AttentionMask& mask, const Into& into) {
  return attention_of(
      2 * charged_pairs(q, kv, mask), q,
      bytes(dq, dkv, dout, q, kv, out, log_sum_exp) + again(dq, into) + again(dkv, into));
}
inline OpCost causal_attention(const View& out, const View& log_sum_exp, const ConstView& qkv,
                               const std::int64_t&) {
  return attention_of(square(qkv.shape()[1]), out, bytes(out, log_sum_exp, qkv));
}
// Four products; that the scores are computed again is not counted.
inline OpCost causal_attention_backward(const View& dqkv, const ConstView& dout,
                                        const ConstView& qkv, const ConstView& out,
                                        const ConstView& log_sum_exp, const std::int64_t&) {
  return attention_of(2 * square(qkv.shape()[1]), out, bytes(dqkv, dout, qkv, out, log_sum_exp));
}
inline OpCost store_keys_values(const View&, const ConstView& qkv, const std::int64_t&,
                                const std::int64_t&) {
  return each(0, qkv, bytes(qkv) * 2 / 3 * 2);
}
inline OpCost cached_attention(const View& out, const ConstView& qkv, const ConstView&,
                               const std::int64_t&, const std::int64_t& first) {
  const std::int64_t T = qkv.shape()[1];
  const double of_a_token = bytes(out) / number(T) * 2;  // its key and value
  const double pairs = number(T) * number(first) + number(T) * number(T + 1) / 2;
  return attention_of(pairs, out, bytes(out, qkv) / 2 + of_a_token * number(first + T));
}

// Of the table the rows that are looked up.
inline OpCost embedding(const View& out, const ConstView&, const ConstView& ids, const Into& into,
                        const TablePart&) {
  return each(into == Into::Accumulate ? 1 : 0, out,
              2 * bytes(out) + bytes(ids) + again(out, into));
}
inline OpCost token_positions(const View& ids, const TokenRuns&) {
  return each(1, ids, bytes(ids));
}
// Overwritten is the whole table; each row of dout is added to one of it.
inline OpCost embedding_backward(const View& dtable, const ConstView& dout, const ConstView& ids,
                                 const Into& into, const TablePart&) {
  const double rows = 2 * bytes(dtable) / number(std::max<std::int64_t>(1, dtable.shape()[0])) *
                      number(std::min(ids.count(), dtable.shape()[0]));
  return each(1, dout, bytes(dout, ids) + (into == Into::Overwrite ? bytes(dtable) : rows));
}
// Maximum, difference, exponential, sum; smoothed, the sum of the logits.
inline OpCost cross_entropy(const View& losses, const View& log_sum_exp, const ConstView& logits,
                            const ConstView& targets, const std::int64_t&, const TablePart&,
                            const double& smoothing) {
  return each(smoothing > 0 ? 5 : 4, logits, bytes(losses, log_sum_exp, logits, targets));
}
// Difference, exponential, factor; smoothed, one more difference.
inline OpCost cross_entropy_backward(const View& dlogits, const ConstView& logits,
                                     const ConstView& log_sum_exp, const ConstView& targets,
                                     const std::int64_t&, const double&, const TablePart&,
                                     const double& smoothing) {
  return each(smoothing > 0 ? 4 : 3, logits, bytes(dlogits, logits, log_sum_exp, targets));
}

inline OpCost sum_of_squares(const ConstView& x) { return each(2, x, bytes(x)); }
// gradient (1), m (3), v (4), both corrected (2), root, sum, quotient (3), decay and update (4).
inline OpCost adamw(const View& weight, const View& master, const View& m, const View& v,
                    const ConstView& gradient, const AdamWStep&) {
  const bool short_weight = bool(master);
  return each(17, m,
              bytes(weight, master, m, v, gradient) + bytes(master, m, v) +
                  (short_weight ? 0 : bytes(weight)));
}
inline OpCost sgd(const View& weight, const View& master, const View& velocity,
                  const ConstView& gradient, const SgdStep&) {
  return each(7, gradient,
              bytes(weight, master, velocity, gradient) + bytes(master, velocity) +
                  (master ? 0 : bytes(weight)));
}

}  // namespace aisc::ops::costs
