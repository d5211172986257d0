// Optimizer steps against the published formulas, master weights, and the norm that clipping needs.
#include <cmath>
#include <string>

#include "tests/ops/per_dtype.h"

namespace aisc {
namespace {

// ---- sum of squares -----------------------------------------------------------------------------

class SumOfSquares : public PerDType {};
INSTANTIATE_TEST_SUITE_P(Ops, SumOfSquares, kFloatingTypes, dtype_name);

TEST_P(SumOfSquares, OfSmallIntegersIsExact) {
  EXPECT_EQ(ops::sum_of_squares(tensor({3, -4, 12}, {3})), 169);
  EXPECT_EQ(ops::sum_of_squares(unwritten({0})), 0);
}

TEST_P(SumOfSquares, MatchesReference) {
  for (const Index n : {1, 7, 255, 256, 257, 4095, 4096, 4097, 30'000}) {
    const Tensor x = random({n}, "x");
    const double expected = reference::sum_of_squares(to_array(x));
    EXPECT_NEAR(ops::sum_of_squares(x), expected, 1e-6 * expected) << n;
  }
}

// Partial sums have fixed bounds, so that clipping is the same on any machine.
TEST_P(SumOfSquares, DoesNotDependOnTheNumberOfThreads) {
  const Tensor x = random({100'003}, "x");
  const double expected = ops::sum_of_squares(x);
  with_threads({1, 2, 3, 7},
               [&](int threads) { EXPECT_EQ(ops::sum_of_squares(x), expected) << threads; });
}

TEST_P(SumOfSquares, OfNaNIsNaN) {
  for (const Index at : {0, 17, 4096, 9999}) {
    const Tensor x = random({10'000}, "x");
    write_doubles(x.view().flat(at, 1), {NAN});
    EXPECT_TRUE(std::isnan(ops::sum_of_squares(x))) << at;
  }
}

// 100'000 ones on top of 2^24: summed one by one in F32 each would be lost.
TEST_P(SumOfSquares, LosesNoSmallTerms) {
  std::vector<double> values(100'001, 1.0);
  values[0] = dtype_ == DType::F16 ? 2048 : 4096;
  EXPECT_NEAR(ops::sum_of_squares(tensor(values, {100'001})), values[0] * values[0] + 1e5, 10);
}

// ---- weights and their state --------------------------------------------------------------------

class Optimizers : public PerDType {
 protected:
  // What an optimizer owns for n weights; for short types the weights are the rounded master.
  struct State {
    Tensor weight, master, m, v;
    View full() const { return master ? master.view() : weight.view(); }
  };
  State start(Index n) {
    State s{random({n}, "weight"), {}, unwritten_sums({n}), unwritten_sums({n})};
    if (is_short()) {
      s.master = random_tensor({n}, DType::F32, device_, "weight");
      ops::cast(s.weight, s.master);
    }
    device_.zero(s.m);
    device_.zero(s.v);
    return s;
  }
  std::vector<DType> gradient_types() const {
    if (is_short()) return {dtype_, DType::F32};
    return {dtype_};
  }
  void expect_weight_is_rounded_master(const State& s) {
    if (!s.master) return;
    const Tensor rounded = unwritten(s.weight.shape());
    ops::cast(rounded, s.master);
    EXPECT_TRUE(same_bits(s.weight, rounded));
  }
  const Tolerance full_ = tolerance_of(sums_);
};
INSTANTIATE_TEST_SUITE_P(Ops, Optimizers, kFloatingTypes, dtype_name);

// The first step of Adam goes lr in the direction of the gradient's sign: 1 - 0.5 = 0.5, whatever
// the gradient's size. Decay takes another 0.5 * 0.1 * 1.
TEST_P(Optimizers, AdamWFirstStepByHand) {
  const State s = start(2);
  const View w = s.full();
  write_doubles(w, {1, 1});
  const Tensor gradient = tensor({3, -0.25}, {2});
  ops::adamw(
      s.weight, s.master, s.m, s.v, gradient,
      {.learning_rate = 0.5, .beta1 = 0.5, .beta2 = 0.75, .epsilon = 0, .weight_decay = 0.1});
  EXPECT_TRUE(all_close(w, {0.45, 1.45}, full_));
  EXPECT_TRUE(all_close(s.m, {1.5, -0.125}, full_));
  EXPECT_TRUE(all_close(s.v, {2.25, 0.015625}, full_));
}

TEST_P(Optimizers, AdamWMatchesReferenceOverSteps) {
  for (const DType gradient_type : gradient_types())
    for (const Index n : {1, 7, 64, 65, 1000, 5000}) {
      const State s = start(n);
      Array weight = to_array(s.full()), m({n}), v({n});
      for (int t = 1; t <= 4; ++t) {
        const Tensor gradient =
            random_tensor({n}, gradient_type, device_, "gradient " + std::to_string(t));
        const ops::AdamWStep step{
            .learning_rate = 0.01 * t, .weight_decay = 0.1, .step = t, .gradient_scale = 0.5};
        ops::adamw(s.weight, s.master, s.m, s.v, gradient, step);
        reference::adamw(weight, m, v, to_array(gradient), step);
      }
      EXPECT_TRUE(all_close(s.full(), weight.values, full_)) << n;
      EXPECT_TRUE(all_close(s.m, m.values, full_)) << n;
      EXPECT_TRUE(all_close(s.v, v.values, full_)) << n;
      expect_weight_is_rounded_master(s);
    }
}

TEST_P(Optimizers, AdamWWithoutGradientOnlyDecays) {
  const State s = start(1);
  write_doubles(s.full(), {2});
  ops::adamw(s.weight, s.master, s.m, s.v, tensor({0}, {1}),
             {.learning_rate = 0.5, .weight_decay = 0.5});
  EXPECT_EQ(to_doubles(s.full()), std::vector<double>{1.5});
}

TEST_P(Optimizers, AdamWKeepsNaN) {
  const State s = start(3);
  ops::adamw(s.weight, s.master, s.m, s.v, tensor({1, NAN, 1}, {3}), {.learning_rate = 0.1});
  EXPECT_TRUE(has_nan(s.full().flat(1, 1)));
  EXPECT_FALSE(has_nan(s.full().flat(0, 1)));
}

// Updates far below a BF16 weight's last place add up in the master until the weight moves.
TEST_P(Optimizers, SmallUpdatesAddUpInTheMaster) {
  const State s = start(1);
  write_doubles(s.full(), {1});
  ops::cast(s.weight, s.full());
  const Tensor gradient = tensor({1}, {1});
  for (int i = 0; i < 64; ++i)
    ops::sgd(s.weight, s.master, {}, gradient, {.learning_rate = 0x1p-12});
  EXPECT_EQ(to_doubles(s.full()), std::vector<double>{1 - 0x1p-6});
  EXPECT_EQ(to_doubles(s.weight), std::vector<double>{1 - 0x1p-6});
}

// velocity 2, then 0.5 * 2 + 2 = 3; weight 1 - 0.1 * 2 - 0.1 * 3.
TEST_P(Optimizers, SgdWithMomentumByHand) {
  const State s = start(1);
  write_doubles(s.full(), {1});
  for (int i = 0; i < 2; ++i)
    ops::sgd(s.weight, s.master, s.m, tensor({2}, {1}), {.learning_rate = 0.1, .momentum = 0.5});
  EXPECT_TRUE(all_close(s.m, {3}, full_));
  EXPECT_TRUE(all_close(s.full(), {0.5}, full_));
}

TEST_P(Optimizers, SgdMatchesReferenceOverSteps) {
  for (const DType gradient_type : gradient_types())
    for (const double momentum : {0.0, 0.9})
      for (const Index n : {1, 7, 65, 5000}) {
        const State s = start(n);
        const View velocity = momentum > 0 ? s.m.view() : View();
        Array weight = to_array(s.full()), expected_velocity({n});
        const ops::SgdStep step{.learning_rate = 0.1,
                                .momentum = momentum,
                                .weight_decay = 0.01,
                                .gradient_scale = 0.25};
        for (int t = 1; t <= 4; ++t) {
          const Tensor gradient =
              random_tensor({n}, gradient_type, device_, "gradient " + std::to_string(t));
          ops::sgd(s.weight, s.master, velocity, gradient, step);
          reference::sgd(weight, expected_velocity, to_array(gradient), step);
        }
        EXPECT_TRUE(all_close(s.full(), weight.values, full_)) << n;
        if (velocity) {
          EXPECT_TRUE(all_close(velocity, expected_velocity.values, full_));
        }
        expect_weight_is_rounded_master(s);
      }
}

}  // namespace
}  // namespace aisc
