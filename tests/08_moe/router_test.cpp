// Routers by hand: what is chosen, what the gates are, and what comes back through them.
#include "08_moe/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "common/nn/key_value_cache.h"
#include "tests/support/error_says.h"
#include "tests/support/gradient_check.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Pointwise;

// A router beside logits, all on the host in F64.
struct Routed {
  Routed(const Router& router, const std::vector<double>& logits, const Shape& shape,
         const Pass& pass = {})
      : choices(router.choose(from_doubles(logits, shape, DType::F64, device), saved, pass)),
        experts(to_doubles(choices.experts)),
        gates(to_doubles(choices.gates)) {}
  std::vector<double> backward(const Router& router, const std::vector<double>& dgates,
                               const std::vector<double>& dscores, const Pass& pass = {}) {
    return to_doubles(router.backward(
        from_doubles(dgates, choices.gates.shape(), DType::F64, device),
        from_doubles(dscores, choices.scores.shape(), DType::F64, device), saved, pass));
  }

  CpuDevice device;
  Saved saved;
  Choices choices;
  std::vector<double> experts, gates;
};

const double kLog3 = std::log(3.0);

// Probabilities 3/4 and 1/4, and the other way round.
TEST(Switch, TakesTheBestAndItsProbability) {
  const auto router = make_switch_router();
  const Routed r(*router, {kLog3, 0, -1, kLog3 - 1}, {1, 2, 2});
  EXPECT_THAT(r.experts, ElementsAre(0, 1)) << "logits log 3, 0 and -1, log 3 - 1: the experts";
  EXPECT_THAT(r.gates, Pointwise(DoubleNear(1e-15), {0.75, 0.75}))
      << "probabilities 3/4 and 1/4, 1/4 and 3/4: the gates are those of the chosen experts";
}

TEST(Switch, OfEqualOnesTheFirst) {
  const Routed r(*make_switch_router(), {2, 2, 2, 1, 5, 5}, {1, 2, 3});
  EXPECT_THAT(r.experts, ElementsAre(0, 1));
}

// The gate is p = 3/4, its slopes p (1 - p) and -p (1 - p); what the losses want is added.
TEST(Switch, LearnsByTheGate) {
  const auto router = make_switch_router();
  Routed r(*router, {kLog3, 0}, {1, 1, 2});
  const double slope = 0.75 * 0.25;
  EXPECT_THAT(r.backward(*router, {2}, {10, 20}),
              Pointwise(DoubleNear(1e-14), {10 + 2 * slope, 20 - 2 * slope}));
  EXPECT_EQ(r.saved.size(), 0u);
}

// e^2 and e^1 of three: 1 / (1 + 1/e), not the probabilities among all.
TEST(Top2, SharesAmongTheTwo) {
  const Routed r(*make_top2_router(), {0, 2, 1, 1, 0, 3}, {1, 2, 3});
  EXPECT_THAT(r.experts, ElementsAre(1, 2, 2, 0));
  const double a = 1 / (1 + std::exp(-1.0)), b = 1 / (1 + std::exp(-2.0));
  EXPECT_THAT(r.gates, Pointwise(DoubleNear(1e-15), {a, 1 - a, b, 1 - b}))
      << "logits 0 2 1 and 1 0 3: gates of the two chosen experts, which share 1 among each other";
}

TEST(Top2, LearnsByTheDifference) {
  const auto router = make_top2_router();
  Routed r(*router, {0, kLog3, 0 - 7.0}, {1, 1, 3});  // gates 3/4 of expert 1, 1/4 of expert 0
  const double slope = 0.75 * 0.25;
  EXPECT_THAT(r.backward(*router, {2, 0}, {10, 20, 30}),
              Pointwise(DoubleNear(1e-14), {10 - 2 * slope, 20 + 2 * slope, 30.0}));
  EXPECT_EQ(r.saved.size(), 0u);
}

// Noise may let another expert win; without training there is none, and the same draw comes again.
TEST(NoisyTop2Given, DrawsByStepAndPlace) {
  const auto router = make_noisy_top2_router("blocks.0.router", 5);
  std::vector<double> logits;
  for (int token = 0; token < 50; ++token) logits.insert(logits.end(), {0, 0.1, 0.2, 3, 3, 3});
  const Shape shape{1, 50, 6};
  const Routed still(*router, logits, shape, {.training = false}),
      noisy(*router, logits, shape, {.step = 7}), again(*router, logits, shape, {.step = 7}),
      later(*router, logits, shape, {.step = 8});
  EXPECT_THAT(still.experts, ::testing::Contains(2).Times(50));
  EXPECT_NE(still.experts, noisy.experts);
  EXPECT_EQ(noisy.experts, again.experts);
  EXPECT_NE(noisy.experts, later.experts);
  // The second sample of one micro-batch is the first of the next.
  std::vector<double> twice = logits;
  twice.insert(twice.end(), logits.begin(), logits.end());
  const Routed both(*router, twice, {2, 50, 6}, {.step = 7}),
      second(*router, logits, shape, {.step = 7, .first_sample = 1});
  EXPECT_EQ(std::vector<double>(both.experts.begin() + 100, both.experts.end()), second.experts);
}

// Four tokens, two experts, room for two each: expert 0 takes 1 and 3, expert 1 takes 0 and 1.
TEST(ExpertChoiceGiven, ExpertsTakeAsManyEach) {
  const auto router = make_expert_choice_router(1.0);
  const Routed r(*router, {0, 1, 2, 2.5, -1, -1.5, 3, 0}, {1, 4, 2});
  EXPECT_THAT(r.experts, ElementsAre(-1, 1, -1, 1, 0, -1, 0, -1));
  const double half = 1 / (1 + std::exp(0.5));
  EXPECT_NEAR(r.gates[4], 1 - half, 1e-15);
  EXPECT_EQ(r.gates[0], 0);
}

// A token that comes later takes an earlier one's place: no text can be generated so.
TEST(ExpertChoiceGiven, IsNotCausal) {
  const auto router = make_expert_choice_router(1.0);
  std::vector<double> logits{1, 0, 0.5, 0, 0, 1, 0, 1};
  const Routed before(*router, logits, {1, 4, 2});
  logits[6] = 5;  // of the last token
  const Routed after(*router, logits, {1, 4, 2});
  EXPECT_EQ(before.experts[2], 0);
  EXPECT_EQ(after.experts[2], -1);
  KeyValueCache* const some = reinterpret_cast<KeyValueCache*>(&logits);  // is only compared
  EXPECT_TRUE(error_says(
      [&] {
        Routed(*router, logits, {1, 4, 2}, {.cache = some});
      },
      {"router expert-choice: an expert compares a token with those behind it"}));
}

struct Bias {
  explicit Bias(const std::vector<double>& values)
      : parameter(whole_parameter("router.bias", {std::ssize(values)}, Init::constant(0), false)),
        tensor(from_doubles(values, {std::ssize(values)}, DType::F64, device)) {
    parameter.bind_value(tensor);
  }
  CpuDevice device;
  Parameter parameter;
  Tensor tensor;
};

// The bias brings expert 2 in; the gates are sigmoids alone: 1/2 and 3/4 over their sum.
TEST(BiasRouterGiven, ChoosesByTheBiasAndWeighsWithoutIt) {
  const Bias none({0, 0, 0}), some({0, 0, 0.4});
  const std::vector<double> logits{0, kLog3, -kLog3};  // sigmoids 1/2, 3/4, 1/4
  const Routed without(*make_bias_router(none.parameter), logits, {1, 1, 3});
  EXPECT_THAT(without.experts, ElementsAre(1, 0));
  EXPECT_THAT(without.gates, Pointwise(DoubleNear(1e-15), {0.6, 0.4}));
  const Routed with(*make_bias_router(some.parameter), logits, {1, 1, 3});
  EXPECT_THAT(with.experts, ElementsAre(1, 2));
  EXPECT_THAT(with.gates, Pointwise(DoubleNear(1e-15), {0.75, 0.25}));
}

}  // namespace
}  // namespace aisc
