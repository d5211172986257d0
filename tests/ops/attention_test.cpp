// Causal attention against the reference that materialises its scores; that nobody sees the future;
// and that memory grows with T, not with its square.
#include <algorithm>
#include <cmath>
#include <string>

#include "tests/ops/per_dtype.h"

namespace aisc {
namespace {

struct AttentionSizes {
  Index B, T, H, D;
};

// Sequences shorter and longer than a block (of 64 on the CPU, of 16, 32, 64 and 128 on a GPU) and
// just at its edges; heads that fill no vector, that fill one of those widths for which a GPU has
// kernels (32, 64, 96, 128), or none.
constexpr AttentionSizes kSizes[] = {
    {1, 1, 1, 1},     {2, 1, 3, 16},   {1, 2, 1, 4},    {3, 5, 2, 8},     {2, 63, 1, 33},
    {1, 64, 2, 64},   {1, 65, 4, 16},  {2, 128, 1, 4},  {1, 130, 2, 80},  {1, 200, 3, 8},
    {1, 64, 1, 1},    {2, 65, 2, 64},  {1, 15, 2, 40},  {2, 16, 1, 96},   {1, 17, 2, 32},
    {1, 127, 2, 128}, {2, 129, 2, 64}, {1, 200, 1, 20}, {1, 257, 1, 128}, {1, 257, 2, 64},
    {1, 129, 1, 96},  {1, 161, 1, 32}, {1, 70, 2, 160}, {1, 66, 1, 136}};

std::string sizes_string(const AttentionSizes& z) {
  return std::to_string(z.B) + " x " + std::to_string(z.T) + " x " + std::to_string(z.H) + " x " +
         std::to_string(z.D);
}

class Attention : public PerDType {
 protected:
  struct Result {
    Tensor out, log_sum_exp;
  };
  void expect_blind_to_the_future(const AttentionSizes& z);
  void expect_reference(ConstView qkv, const Result& r, Index heads) {
    const reference::Attention expected = reference::causal_attention(to_array(qkv), heads);
    EXPECT_TRUE(all_close(r.out, expected.out.values, forward_tolerance()));
    EXPECT_TRUE(all_close(r.log_sum_exp, expected.log_sum_exp.values, tolerance_of(sums_)));
  }
  Tensor random_qkv(const AttentionSizes& z, double scale = 1.0) {
    return random({z.B, z.T, z.H * 3 * z.D}, "qkv", scale);
  }
  Result forward(ConstView qkv, Index heads) {
    const Index B = qkv.shape()[0], T = qkv.shape()[1];
    Result r{unwritten({B, T, qkv.shape()[2] / 3}), unwritten_sums({B, heads, T})};
    ops::causal_attention(r.out, r.log_sum_exp, qkv, heads);
    return r;
  }
  Tensor backward(ConstView dout, ConstView qkv, const Result& r, Index heads) {
    Tensor dqkv = unwritten(qkv.shape());
    ops::causal_attention_backward(dqkv, dout, qkv, r.out, r.log_sum_exp, heads);
    return dqkv;
  }
  // Tensor cores take probabilities that are rounded to the type, each by up to half a last place,
  // and values some times larger than their average: measured at up to 4 roundings. In longer types
  // a GPU adds one key after the other: up to 1.1 times what is allowed else.
  Tolerance forward_tolerance() const {
    return tolerance_of(dtype_, !on_gpu() ? 1 : is_short() ? 5 : 2);
  }
  // The backward pass takes sum(dout * out) from an `out` that was rounded to its type, and
  // multiplies that error by keys and queries: measured at up to 12 roundings in short types.
  Tolerance backward_tolerance() const { return tolerance_of(dtype_, is_short() ? 20 : 3); }
};
INSTANTIATE_TEST_SUITE_P(Ops, Attention, kFloatingTypes, dtype_name);

// Equal keys: each token averages the values so far. The log-sum-exp of t + 1 zeros is log(t + 1).
TEST_P(Attention, WithEqualKeysAveragesThePast) {
  const Tensor qkv = tensor({1, 0, 8,  //
                             2, 0, 4,  //
                             3, 0, 0,  //
                             4, 0, 20},
                            {1, 4, 3});
  const Result r = forward(qkv, 1);
  EXPECT_TRUE(all_close(r.out, {8, 6, 4, 8}, rounded_));
  EXPECT_TRUE(
      all_close(r.log_sum_exp, {0, std::log(2), std::log(3), std::log(4)}, tolerance_of(sums_)));
}

// The same over several blocks, at a head size that a GPU gives to its tensor cores.
TEST_P(Attention, WithEqualScoresAveragesThePast) {
  const Index T = 300, D = 16;
  const Tensor qkv = random_qkv({1, T, 1, D});
  Array input = to_array(qkv), expected({1, T, D});
  std::vector<double> log_sum_exp, sums(size_t(D), 0.0);
  for (Index t = 0; t < T; ++t) {
    for (Index d = 0; d < D; ++d) {
      input(0, t, D + d) = 0;
      sums[size_t(d)] += input(0, t, 2 * D + d);
      expected(0, t, d) = sums[size_t(d)] / double(t + 1);
    }
    log_sum_exp.push_back(std::log(t + 1));
  }
  write_doubles(qkv, input.values);
  const Result r = forward(qkv, 1);
  EXPECT_TRUE(all_close(r.out, expected.values, forward_tolerance()));
  EXPECT_TRUE(all_close(r.log_sum_exp, log_sum_exp, tolerance_of(sums_)));
}

TEST_P(Attention, MatchesReference) {
  for (const AttentionSizes& z : kSizes) {
    const Tensor qkv = random_qkv(z);
    SCOPED_TRACE(sizes_string(z));
    expect_reference(qkv, forward(qkv, z.H), z.H);
  }
}

TEST_P(Attention, BackwardMatchesReference) {
  for (const AttentionSizes& z : kSizes) {
    const Tensor qkv = random_qkv(z), dout = random({z.B, z.T, z.H * z.D}, "dout");
    const Result r = forward(qkv, z.H);
    const Tensor dqkv = backward(dout, qkv, r, z.H);
    const Array expected = reference::causal_attention_backward(to_array(dout), to_array(qkv), z.H);
    EXPECT_TRUE(all_close(dqkv, expected.values, backward_tolerance())) << sizes_string(z);
  }
}

// Scores of a few hundred: their exponentials overflow unless the largest is taken out first.
TEST_P(Attention, WithLargeScoresIsFiniteAndRight) {
  const AttentionSizes z{1, 130, 2, 16};
  const Tensor qkv = random_qkv(z, 12), dout = random({z.B, z.T, z.H * z.D}, "dout");
  const Result r = forward(qkv, z.H);
  const reference::Attention expected = reference::causal_attention(to_array(qkv), z.H);
  // A score of 600 is known to 600 roundoffs, and so is its exponential.
  const double lost = 600 * (dtype_ == DType::F64 ? 0x1p-52 : 0x1p-23);
  const Tolerance tolerance{forward_tolerance().relative + lost};
  EXPECT_GT(
      *std::max_element(expected.log_sum_exp.values.begin(), expected.log_sum_exp.values.end()),
      200);
  EXPECT_TRUE(all_close(r.out, expected.out.values, tolerance));
  EXPECT_TRUE(all_close(r.log_sum_exp, expected.log_sum_exp.values, tolerance_of(sums_)));
  const Tensor dqkv = backward(dout, qkv, r, z.H);
  const Array gradients = reference::causal_attention_backward(to_array(dout), to_array(qkv), z.H);
  if (is_short())  // the rounding of `out` is multiplied by keys of size 12: only finite is sure
    for (const double value : to_doubles(dqkv)) ASSERT_TRUE(std::isfinite(value));
  else
    EXPECT_TRUE(all_close(dqkv, gradients.values, {backward_tolerance().relative + 10 * lost}));
}

// Whatever the tokens after t become, tokens 0..t keep every bit of their outputs.
void Attention::expect_blind_to_the_future(const AttentionSizes& z) {
  const Tensor qkv = random_qkv(z);
  const Result before = forward(qkv, z.H);
  for (const Index t : {0, 1, 30, 62, 63, 64, 127, 128, 198}) {
    const Tensor other = qkv.clone();
    const Index row = z.H * 3 * z.D;
    write_doubles(other.view().flat((t + 1) * row, row),
                  to_doubles(random({row}, "another token", 20)));
    const Result after = forward(other, z.H);
    const Index seen = (t + 1) * z.H * z.D;
    EXPECT_TRUE(same_bits(before.out.view().flat(0, seen), after.out.view().flat(0, seen))) << t;
    EXPECT_FALSE(
        same_bits(before.out.view().flat(seen, z.H * z.D), after.out.view().flat(seen, z.H * z.D)))
        << "token " << t + 1 << " does not see itself";
    for (Index h = 0; h < z.H; ++h)
      EXPECT_TRUE(same_bits(before.log_sum_exp.view().flat(h * z.T, t + 1),
                            after.log_sum_exp.view().flat(h * z.T, t + 1)));
  }
}

TEST_P(Attention, NobodySeesTheFuture) {
  for (const Index D : {20, 24}) expect_blind_to_the_future({1, 200, 2, D});
}

// The same from the other side: what token t says of the loss never reaches the tokens after it.
TEST_P(Attention, GradientsReachNoLaterToken) {
  const AttentionSizes z{1, 130, 2, 8};
  const Index row = z.H * 3 * z.D;
  const Tensor qkv = random_qkv(z), dout = unwritten({z.B, z.T, z.H * z.D});
  const Result r = forward(qkv, z.H);
  for (const Index t : {0, 63, 64, 100}) {
    device_.zero(dout);
    ops::fill(dout.view().flat(t * z.H * z.D, z.H * z.D), 1);
    const Tensor dqkv = backward(dout, qkv, r, z.H);
    const Index later = (z.T - 1 - t) * row;
    EXPECT_EQ(to_doubles(dqkv.view().flat((t + 1) * row, later)),
              std::vector<double>(size_t(later), 0.0));
    EXPECT_NE(to_doubles(dqkv.view().flat(0, row)), std::vector<double>(size_t(row), 0.0));
  }
}

TEST_P(Attention, HeadsAndSamplesDoNotMix) {
  const AttentionSizes z{2, 70, 3, 8};
  const Tensor qkv = random_qkv(z);
  const Tensor one = unwritten({1, z.T, 3 * z.D});
  const Array all = to_array(qkv);
  Array head_1({1, z.T, 3 * z.D});  // of sample 1
  for (Index t = 0; t < z.T; ++t)
    for (Index c = 0; c < 3 * z.D; ++c) head_1(0, t, c) = all(1, t, 3 * z.D + c);
  write_doubles(one, head_1.values);
  const Array together = to_array(forward(qkv, z.H).out), alone = to_array(forward(one, 1).out);
  for (Index t = 0; t < z.T; ++t)
    for (Index d = 0; d < z.D; ++d) EXPECT_EQ(together(1, t, z.D + d), alone(0, t, d));
}

// Views begin anywhere: at a multiple of 16 bytes, as tensor cores need it, or not.
TEST_P(Attention, WorksOnSlices) {
  const AttentionSizes z{1, 70, 2, 16};
  const Tensor qkv = random_qkv(z), dout = random({z.B, z.T, z.H * z.D}, "dout");
  const reference::Attention expected = reference::causal_attention(to_array(qkv), z.H);
  const Array gradients = reference::causal_attention_backward(to_array(dout), to_array(qkv), z.H);
  for (const Index before : {8, 1}) {
    const Between in(qkv, before), din(dout, before);
    const Between out(dout.shape(), dtype_, device_, before);
    const Between dqkv(qkv.shape(), dtype_, device_, before);
    const Tensor log_sum_exp = unwritten_sums({z.B, z.H, z.T});
    ops::causal_attention(out, log_sum_exp, in, z.H);
    ops::causal_attention_backward(dqkv, din, in, out, log_sum_exp, z.H);
    EXPECT_TRUE(all_close(out, expected.out.values, forward_tolerance())) << before;
    EXPECT_TRUE(all_close(dqkv, gradients.values, backward_tolerance())) << before;
  }
}

TEST_P(Attention, IsTheSameInEveryRun) {
  for (const AttentionSizes& z : {AttentionSizes{2, 150, 2, 64}, AttentionSizes{1, 150, 2, 20}}) {
    const Tensor qkv = random_qkv(z), dout = random({z.B, z.T, z.H * z.D}, "dout");
    const Result once = forward(qkv, z.H), again = forward(qkv, z.H);
    EXPECT_TRUE(same_bits(once.out, again.out));
    EXPECT_TRUE(same_bits(once.log_sum_exp, again.log_sum_exp));
    EXPECT_TRUE(same_bits(backward(dout, qkv, once, z.H), backward(dout, qkv, again, z.H)));
  }
}

TEST_P(Attention, NaNSpoilsWhatSeesIt) {
  const AttentionSizes z{1, 70, 1, 8};
  const Tensor qkv = random_qkv(z);
  write_doubles(qkv.view().flat(66 * 24, 1), {NAN});  // the query of token 66
  const Result r = forward(qkv, z.H);
  EXPECT_TRUE(has_nan(r.out.view().flat(66 * 8, 8)));
  EXPECT_FALSE(has_nan(r.out.view().flat(0, 66 * 8)));
}

TEST_P(Attention, OfNothingIsNothing) {
  EXPECT_NO_THROW(forward(unwritten({0, 5, 6}), 2));
  EXPECT_NO_THROW(forward(unwritten({2, 0, 6}), 1));
}

// Four times the tokens take four times the memory, at most; a (T, T) tensor would take sixteen.
TEST_P(Attention, MemoryGrowsWithTNotItsSquare) {
  const auto peak = [&](Index T) {
    const Tensor qkv = random_qkv({1, T, 1, 16}), dout = random({1, T, 16}, "dout");
    device_.reset_peaks();
    const Result r = forward(qkv, 1);
    const Tensor dqkv = backward(dout, qkv, r, 1);
    const Ledger ledger = device_.ledger();
    EXPECT_EQ(ledger[Purpose::Activations].peak_bytes, ledger[Purpose::Activations].live_bytes);
    return ledger.total.peak_bytes;
  };
  EXPECT_LE(peak(512), 4 * peak(128) + 4096);
}

class AttentionOnThreads : public Attention {};
INSTANTIATE_TEST_SUITE_P(Ops, AttentionOnThreads, kTypesOnCpu, dtype_name);

TEST_P(AttentionOnThreads, MatchesReferenceWithAnyNumberOfThreads) {
  const AttentionSizes z{2, 70, 3, 16};
  const Tensor qkv = random_qkv(z), dout = random({z.B, z.T, z.H * z.D}, "dout");
  const reference::Attention expected = reference::causal_attention(to_array(qkv), z.H);
  const Array gradients = reference::causal_attention_backward(to_array(dout), to_array(qkv), z.H);
  with_threads({1, 2, 3}, [&](int /*threads*/) {
    const Result r = forward(qkv, z.H);
    EXPECT_TRUE(all_close(r.out, expected.out.values, rounded_));
    EXPECT_TRUE(all_close(backward(dout, qkv, r, z.H), gradients.values, backward_tolerance()));
  });
}

}  // namespace
}  // namespace aisc
