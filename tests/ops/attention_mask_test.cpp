// Attention of queries to keys of other tokens: to all, to those at earlier positions, to those
// before a sample's end; against the formulas term by term.
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <string>

#include "tests/ops/per_dtype.h"

namespace aisc {
namespace {

using ops::AttentionMask;
using ops::TokenRuns;

// T queries and K keys; padding begins at `lengths` of the samples, if there are any.
struct MaskCase {
  const char* name;
  Index B, T, K, H, D;
  bool causal;
  TokenRuns queries = {}, keys = {};
  std::vector<double> lengths = {};
};

// Within a block of 64, at its edges and beyond; queries behind all keys, before all, and among
// them; early and late parts of a sequence, as the ranks of a zigzag have them.
const MaskCase kCases[] = {
    {"AllSeeAll", 2, 5, 7, 2, 8, false},
    {"ManyKeys", 1, 65, 200, 2, 64, false},
    {"OneQuery", 2, 1, 130, 3, 16, false},
    {"OwnTokens", 1, 130, 130, 2, 20, true},
    {"EarlierKeys", 1, 70, 90, 1, 64, true, {.first = 200}, {.first = 100}},
    {"KeysInPart", 2, 70, 90, 2, 16, true, {.first = 40}},
    {"LaterKeys", 1, 70, 64, 1, 16, true, {}, {.first = 70}},
    {"OneOfMany", 1, 66, 3, 1, 8, true, {}, {.first = 63}},
    {"ZigzagOwn", 1, 128, 128, 2, 32, true, {0, 64, 448}, {0, 64, 448}},
    {"ZigzagOther", 2, 100, 90, 2, 16, true, {100, 50, 250}, {60, 40, 300}},
    {"ZigzagUneven", 1, 67, 131, 1, 24, true, {10, 3, 90}, {0, 70, 80}},
    {"Lengths", 3, 66, 130, 2, 16, false, {}, {}, {130, 0, 65}},
    {"CausalLengths", 2, 130, 130, 1, 64, true, {}, {}, {64, 100}},
    {"LengthsOfAPart", 2, 40, 64, 1, 16, false, {}, {.first = 64}, {60, 100}},
    {"WideHeads", 1, 200, 300, 1, 128, true, {.first = 100}},
    {"ZigzagWide", 1, 200, 260, 1, 96, true, {50, 90, 400}, {0, 100, 350}, {420}}};

class AttentionMasks : public PerDType {
 protected:
  struct Results {
    Array out, log_sum_exp, dq, dkv;
  };

  AttentionMask mask_of(const MaskCase& c) {
    lengths_ = {};
    if (!c.lengths.empty()) lengths_ = from_doubles(c.lengths, {c.B}, DType::I32, device_);
    return {c.causal, c.queries, c.keys, c.lengths.empty() ? ConstView() : ConstView(lengths_)};
  }
  static bool sees(const MaskCase& c, Index b, Index t, Index j) {
    const Index key = c.keys.position(j);
    return (!c.causal || key <= c.queries.position(t)) &&
           (c.lengths.empty() || static_cast<double>(key) < c.lengths[size_t(b)]);
  }

  // out = P V with P = softmax(Q K^T / sqrt D) over the keys that are seen; then, of dout:
  // dV = P^T dO, dS = P (dO V^T - sum(dO out)), dQ = dS K / sqrt D, dK = dS^T Q / sqrt D.
  static Results expected(const MaskCase& c, const Array& q, const Array& kv, const Array& dout) {
    Results r{Array(q.shape), Array({c.B, c.H, c.T}), Array(q.shape), Array(kv.shape)};
    const double root = std::sqrt(double(c.D));
    // A head's D numbers of a token, in rows of H D.
    const auto of = [&](auto& array, Index row, Index head) {
      return &array.values[size_t((row * c.H + head) * c.D)];
    };
    const auto dot = [&](const double* x, const double* y) {
      return std::inner_product(x, x + c.D, y, 0.0);
    };
    const auto add = [&](double* sum, double factor, const double* x) {
      for (Index d = 0; d < c.D; ++d) sum[d] += factor * x[d];
    };
    const auto each = [&](Index b, Index h, Index t) {
      const Index token = b * c.T + t, keys = b * c.K, values = (c.B + b) * c.K;
      std::vector<double> p(size_t(c.K), -INFINITY);
      double highest = -INFINITY, sum = 0;
      for (Index j = 0; j < c.K; ++j) {
        if (!sees(c, b, t, j)) continue;
        p[size_t(j)] = dot(of(q, token, h), of(kv, keys + j, h)) / root;
        highest = std::max(highest, p[size_t(j)]);
      }
      r.log_sum_exp(b, h, t) = -INFINITY;
      if (highest == -INFINITY) return;  // out and all gradients stay 0
      for (double& x : p) sum += x = std::exp(x - highest);
      r.log_sum_exp(b, h, t) = highest + std::log(sum);
      for (Index j = 0; j < c.K; ++j)
        add(of(r.out, token, h), p[size_t(j)] / sum, of(kv, values + j, h));
      const double delta = dot(of(dout, token, h), of(r.out, token, h));
      for (Index j = 0; j < c.K; ++j) {
        const double pj = p[size_t(j)] / sum;
        const double ds = pj * (dot(of(dout, token, h), of(kv, values + j, h)) - delta) / root;
        add(of(r.dkv, values + j, h), pj, of(dout, token, h));
        add(of(r.dq, token, h), ds, of(kv, keys + j, h));
        add(of(r.dkv, keys + j, h), ds, of(q, token, h));
      }
    };
    for (Index b = 0; b < c.B; ++b)
      for (Index h = 0; h < c.H; ++h)
        for (Index t = 0; t < c.T; ++t) each(b, h, t);
    return r;
  }

  void make(const MaskCase& c) {
    q_ = random({c.B, c.T, c.H * c.D}, "q");
    kv_ = random({2, c.B, c.K, c.H * c.D}, "kv");
    dout_ = random({c.B, c.T, c.H * c.D}, "dout");
    out_ = unwritten(q_.shape());
    log_sum_exp_ = unwritten_sums({c.B, c.H, c.T});
    ops::attention(out_, log_sum_exp_, q_, kv_, c.H, mask_of(c));
  }
  void backward(const MaskCase& c, View dq, View dkv, ops::Into into = ops::Into::Overwrite) {
    ops::attention_backward(dq, dkv, dout_, q_, kv_, out_, log_sum_exp_, c.H, mask_of(c), into);
  }
  // As in attention_test.cpp.
  Tolerance forward_tolerance() const {
    return tolerance_of(dtype_, !on_gpu() ? 1 : is_short() ? 5 : 2);
  }
  Tolerance backward_tolerance() const { return tolerance_of(dtype_, is_short() ? 20 : 3); }

  Tensor q_, kv_, dout_, out_, log_sum_exp_, lengths_;
};
INSTANTIATE_TEST_SUITE_P(Ops, AttentionMasks, kFloatingTypes, dtype_name);

TEST_P(AttentionMasks, MatchTheFormulas) {
  for (const MaskCase& c : kCases) {
    SCOPED_TRACE(c.name);
    make(c);
    const Tensor dq = unwritten(q_.shape()), dkv = unwritten(kv_.shape());
    backward(c, dq, dkv);
    const Results r = expected(c, to_array(q_), to_array(kv_), to_array(dout_));
    EXPECT_TRUE(all_close(out_, r.out.values, forward_tolerance()));
    EXPECT_TRUE(all_close(dq, r.dq.values, backward_tolerance()));
    EXPECT_TRUE(all_close(dkv, r.dkv.values, backward_tolerance()));
    const std::vector<double> sums = to_doubles(log_sum_exp_);
    for (size_t i = 0; i < sums.size(); ++i)
      if (std::isinf(r.log_sum_exp.values[i])) {
        EXPECT_EQ(sums[i], -INFINITY);
      } else {
        EXPECT_NEAR(sums[i], r.log_sum_exp.values[i], 1e-5);
      }
  }
}

// Where scores are stored: a softmax over the keys that are seen, nothing of the others.
TEST_P(AttentionMasks, SoftmaxOfStoredScores) {
  constexpr double kFactor = 0.25;
  for (const MaskCase& c : kCases) {
    SCOPED_TRACE(c.name);
    const Tensor x = random({c.B, c.H, c.T, c.K}, "scores", 8), y = unwritten(x.shape());
    ops::masked_softmax(y, x, kFactor, mask_of(c));
    Array p = to_array(x);
    for (Index row = 0; row < c.B * c.H * c.T; ++row) {
      double* const row_of_p = &p.values[size_t(row * c.K)];
      double sum = 0;
      for (Index j = 0; j < c.K; ++j) {
        const bool seen = sees(c, row / (c.H * c.T), row % c.T, j);
        sum += row_of_p[j] = seen ? std::exp(kFactor * row_of_p[j]) : 0;
      }
      for (Index j = 0; j < c.K && sum > 0; ++j) row_of_p[j] /= sum;
    }
    EXPECT_TRUE(all_close(y, p.values, rounded_));
    ops::masked_softmax(x, x, kFactor, mask_of(c));
    EXPECT_TRUE(same_bits(x, y)) << "in place";
  }
}

// Sums of several calls, as a ring adds them up, in F32 or in the type of the keys: twice what one
// call gives. Of each kind of mask one.
TEST_P(AttentionMasks, GradientsAddUp) {
  for (const int number : {0, 3, 5, 9, 11, 15}) {
    const MaskCase& c = kCases[number];
    SCOPED_TRACE(c.name);
    make(c);
    const Results r = expected(c, to_array(q_), to_array(kv_), to_array(dout_));
    for (const DType longer : std::set{sums_, dtype_}) {
      const Tensor dq(q_.shape(), longer, device_), dkv(kv_.shape(), longer, device_);
      backward(c, dq, dkv);
      EXPECT_TRUE(all_close(dq, r.dq.values, backward_tolerance()));
      EXPECT_TRUE(all_close(dkv, r.dkv.values, backward_tolerance()));
      Array once_q = to_array(dq), once_kv = to_array(dkv);
      backward(c, dq, dkv, ops::Into::Accumulate);
      for (double& x : once_q.values) x *= 2;
      for (double& x : once_kv.values) x *= 2;
      EXPECT_TRUE(all_close(dq, once_q.values, tolerance_of(longer)));
      EXPECT_TRUE(all_close(dkv, once_kv.values, tolerance_of(longer)));
    }
  }
}

// What padding holds reaches no result.
TEST_P(AttentionMasks, PaddingChangesNoBit) {
  const MaskCase c{"padded", 2, 70, 130, 2, 16, false, {}, {}, {64, 128}};
  make(c);
  const Tensor dq = unwritten(q_.shape()), dkv = unwritten(kv_.shape());
  backward(c, dq, dkv);
  const Tensor before = out_.clone(), dq_before = dq.clone();
  const Index row = kv_.shape()[3];
  for (const Index from : {64, 130 + 128, 2 * 130 + 64, 3 * 130 + 128})  // of (2, B, K) rows
    write_doubles(kv_.view().flat(from * row, 2 * row), std::vector<double>(size_t(2 * row), 1e4));
  ops::attention(out_, log_sum_exp_, q_, kv_, c.H, mask_of(c));
  backward(c, dq, dkv);
  EXPECT_TRUE(same_bits(before, out_));
  EXPECT_TRUE(same_bits(dq_before, dq));
  const Array gradients = to_array(dkv);
  for (Index j = 64; j < 130; ++j)
    for (Index d = 0; d < row; ++d) ASSERT_EQ(gradients(0, 0, j, d) + gradients(1, 0, j, d), 0.0);
}

// The fused operation is a call of the same one.
TEST_P(AttentionMasks, OneTensorOfAllThreeGivesTheSameBits) {
  const Index B = 2, T = 130, H = 2, D = 64;
  const Tensor qkv = random({B, T, H * 3 * D}, "qkv"), dout = random({B, T, H * D}, "dout");
  Array q({B, T, H * D}), kv({2, B, T, H * D});
  const Array all = to_array(qkv);
  for (Index b = 0; b < B; ++b)
    for (Index t = 0; t < T; ++t)
      for (Index h = 0; h < H; ++h)
        for (Index d = 0; d < D; ++d) {
          q(b, t, h * D + d) = all(b, t, 3 * h * D + d);
          for (Index i : {0, 1}) kv(i, b, t, h * D + d) = all(b, t, (3 * h + 1 + i) * D + d);
        }
  const Tensor q_part = unwritten({B, T, H * D}), kv_part = unwritten({2, B, T, H * D});
  write_doubles(q_part, q.values);
  write_doubles(kv_part, kv.values);
  const Tensor out = unwritten({B, T, H * D}), fused = unwritten({B, T, H * D});
  const Tensor lse = unwritten_sums({B, H, T}), fused_lse = unwritten_sums({B, H, T});
  ops::attention(out, lse, q_part, kv_part, H, {});
  ops::causal_attention(fused, fused_lse, qkv, H);
  EXPECT_TRUE(same_bits(out, fused));
  EXPECT_TRUE(same_bits(lse, fused_lse));
  const Tensor dqkv = unwritten(qkv.shape()), dq = unwritten(q_part.shape()),
               dkv = unwritten(kv_part.shape());
  ops::causal_attention_backward(dqkv, dout, qkv, fused, fused_lse, H);
  ops::attention_backward(dq, dkv, dout, q_part, kv_part, out, lse, H, {});
  const Array whole = to_array(dqkv), of_q = to_array(dq), of_kv = to_array(dkv);
  for (Index t = 0; t < T; ++t)
    for (Index h = 0; h < H; ++h)
      for (Index d = 0; d < D; ++d) {
        ASSERT_EQ(whole(1, t, 3 * h * D + d), of_q(1, t, h * D + d));
        ASSERT_EQ(whole(1, t, (3 * h + 1) * D + d), of_kv(0, 1, t, h * D + d));
        ASSERT_EQ(whole(1, t, (3 * h + 2) * D + d), of_kv(1, 1, t, h * D + d));
      }
}

TEST_P(AttentionMasks, OfNothingIsNothing) {
  make({"no queries", 1, 0, 3, 1, 4, false});
  const MaskCase no_keys{"no keys", 1, 2, 0, 1, 4, false};
  make(no_keys);
  EXPECT_EQ(to_doubles(out_), std::vector<double>(8, 0.0));
  const Tensor dq = unwritten(q_.shape()), dkv = unwritten(kv_.shape());
  backward(no_keys, dq, dkv);
  EXPECT_EQ(to_doubles(dq), std::vector<double>(8, 0.0));
}

}  // namespace
}  // namespace aisc
