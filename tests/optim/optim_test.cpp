// Optimizers against their textbook recurrences, clipping, the schedule, and bytes of state.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/nn/parameter_store.h"
#include "common/optim/clip.h"
#include "common/optim/optimizer.h"
#include "common/optim/schedule.h"
#include "tests/support/compare.h"
#include "tests/support/devices.h"
#include "tests/support/error_says.h"
#include "tests/support/ledger_checks.h"
#include "tests/support/shard_slices.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

std::vector<OptimizerSlice> one_slice(View weight, View gradient, bool decay = true) {
  return {{"weight", weight, gradient, decay}};
}

class OptimizerSteps : public PerDevice {};
INSTANTIATE_TEST_SUITE_P(All, OptimizerSteps, ::testing::ValuesIn(device_kinds()),
                         device_kind_test_name);

TEST_P(OptimizerSteps, AdamWFollowsItsRecurrenceOverSeveralSteps) {
  const Tensor weight = from_doubles({1.0, -2.0, 0.5}, {3}, DType::F64, device_);
  const Tensor gradient({3}, DType::F64, device_);
  AdamW adamw(one_slice(weight, gradient),
              {.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .weight_decay = 0.1});
  std::vector<double> w{1.0, -2.0, 0.5}, m(3), v(3);
  for (int t = 1; t <= 5; ++t) {
    const std::vector<double> g{0.1 * t, -0.3, t == 3 ? 0.0 : 2.0};
    write_doubles(gradient, g);
    adamw.step({.learning_rate = 0.01, .gradient_scale = 0.5});
    for (std::size_t i = 0; i < 3; ++i) {
      m[i] = 0.9 * m[i] + 0.1 * 0.5 * g[i];
      v[i] = 0.99 * v[i] + 0.01 * 0.25 * g[i] * g[i];
      const double mean = m[i] / (1 - std::pow(0.9, t)), square = v[i] / (1 - std::pow(0.99, t));
      w[i] -= 0.01 * (mean / (std::sqrt(square) + 1e-8) + 0.1 * w[i]);
    }
    EXPECT_TRUE(all_close(weight, w, kF64Tolerance)) << "step " << t;
  }
  EXPECT_EQ(adamw.steps(), 5);
}

TEST_P(OptimizerSteps, AdamWDecaysOnlyTheSlicesThatAskForIt) {
  const Tensor decayed = from_doubles({2}, {1}, DType::F64, device_);
  const Tensor kept = from_doubles({2}, {1}, DType::F64, device_);
  const Tensor zero = from_doubles({0}, {1}, DType::F64, device_);
  AdamW adamw({{"decayed", decayed, zero, true}, {"kept", kept, zero, false}},
              {.weight_decay = 0.5});
  adamw.step({.learning_rate = 0.1});
  EXPECT_DOUBLE_EQ(to_doubles(decayed)[0], 1.9);
  EXPECT_EQ(to_doubles(kept)[0], 2.0);
}

// 2 bytes of weight and 2 of gradient, and of state 4 for the master copy, 4 for m, 4 for v.
TEST_P(OptimizerSteps, AdamWHoldsTwelveBytesOfStatePerParameterInBF16AndEightInF32) {
  for (const auto& [dtype, bytes] : {std::pair(DType::BF16, 12), std::pair(DType::F32, 8)}) {
    const auto owned = make_test_device(GetParam());
    Device& device = *owned;
    const Tensor weight = random_tensor({1000}, dtype, device, "w", 1.0);
    const Tensor gradient = random_tensor({1000}, dtype, device, "g", 1.0);
    const AdamW adamw(one_slice(weight, gradient), {});
    EXPECT_TRUE(live_bytes_are(device, Purpose::Optimizer, bytes * 1000));
  }
}

// A weight of 1 in BF16 has steps of 2^-8 below and 2^-7 above. An update of 2^-10 is lost without
// a master copy; with it, eight of them arrive.
TEST_P(OptimizerSteps, AdamWMasterWeightsKeepUpdatesThatBF16WouldLose) {
  const Tensor weight = from_doubles({1}, {1}, DType::BF16, device_);
  const Tensor gradient = from_doubles({-1}, {1}, DType::BF16, device_);
  AdamW adamw(one_slice(weight, gradient, false), {});
  for (int i = 0; i < 8; ++i) adamw.step({.learning_rate = 0x1p-10});
  EXPECT_EQ(to_doubles(weight)[0], 1 + 0x1p-7);
  const auto state = adamw.state();
  ASSERT_EQ(state.size(), 3u);
  EXPECT_EQ(state[0].name, "weight/master");
  EXPECT_NEAR(to_doubles(state[0].value)[0], 1 + 8 * 0x1p-10, 1e-5);
}

TEST_P(OptimizerSteps, SgdFollowsItsRecurrenceWithMomentum) {
  const Tensor weight = from_doubles({1.0, -2.0}, {2}, DType::F64, device_);
  const Tensor gradient = from_doubles({0.5, 0.25}, {2}, DType::F64, device_);
  Sgd sgd(one_slice(weight, gradient), {.momentum = 0.9, .weight_decay = 0.1});
  std::vector<double> w{1.0, -2.0}, u(2);
  for (int t = 0; t < 4; ++t) {
    sgd.step({.learning_rate = 0.1, .gradient_scale = 2});
    for (std::size_t i = 0; i < 2; ++i) {
      const double g = 2 * (i == 0 ? 0.5 : 0.25);
      u[i] = 0.9 * u[i] + g + 0.1 * w[i];
      w[i] -= 0.1 * u[i];
    }
    EXPECT_TRUE(all_close(weight, w, kF64Tolerance));
  }
}

TEST_P(OptimizerSteps, SgdHoldsNoStateWithoutMomentum) {
  const Tensor weight = random_tensor({10}, DType::F32, device_, "w", 1.0);
  const Tensor gradient = random_tensor({10}, DType::F32, device_, "g", 1.0);
  Sgd sgd(one_slice(weight, gradient), {});
  EXPECT_TRUE(live_bytes_are(device_, Purpose::Optimizer, 0));
  EXPECT_TRUE(sgd.state().empty());
  const auto before = to_doubles(weight), g = to_doubles(gradient);
  sgd.step({.learning_rate = 0.5});
  std::vector<double> expected(before);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] -= 0.5 * g[i];
  EXPECT_TRUE(all_close(weight, expected, kF32Tolerance));
}

TEST_P(OptimizerSteps, ClippingBringsTheGlobalNormDownAndLeavesSmallOnesAlone) {
  const Tensor a = from_doubles({3, 0}, {2}, DType::F32, device_);
  const Tensor b = from_doubles({4}, {1}, DType::F32, device_);
  const std::vector<ConstView> both{a, b};
  EXPECT_DOUBLE_EQ(global_norm(both), 5.0);
  EXPECT_NEAR(clip_factor(5, 1), 0.2, 1e-7);
  EXPECT_EQ(clip_factor(0.5, 1), 1.0);
  EXPECT_EQ(clip_factor(0, 1), 1.0);
  EXPECT_EQ(clip_factor(5, 0), 1.0);
  EXPECT_TRUE(error_says([] { clip_factor(1, -1); }, {"max_norm is -1", ">= 0"}));
  write_doubles(b, {std::numeric_limits<double>::quiet_NaN()});
  EXPECT_TRUE(std::isnan(global_norm(both)));
  EXPECT_TRUE(std::isnan(clip_factor(global_norm(both), 1)));
}

// max_norm / (norm + 1e-6), not max_norm / norm: in a tiny norm the difference is not tiny.
TEST(Clip, DividesByTheNormAndAMillionthAsPyTorchDoes) {
  EXPECT_DOUBLE_EQ(clip_factor(1e-6, 1e-6), 0.5);
  EXPECT_DOUBLE_EQ(clip_factor(3e-6, 1e-6), 0.25);
  EXPECT_DOUBLE_EQ(clip_factor(5, 1), 1 / 5.000001);
  EXPECT_EQ(clip_factor(1, 1.000001), 1.0);
  EXPECT_LT(clip_factor(1, 1), 1.0);
}

TEST(RateSchedule, WarmsUpThenFallsToTheFloor) {
  const RateSchedule s{.peak = 1.0, .floor = 0.1, .warmup_steps = 4, .total_steps = 15};
  EXPECT_DOUBLE_EQ(s.at(0), 0.25);
  EXPECT_DOUBLE_EQ(s.at(3), 1.0);
  EXPECT_DOUBLE_EQ(s.at(4), 1.0);
  EXPECT_DOUBLE_EQ(s.at(9), 0.55);  // halfway between steps 4 and 14
  EXPECT_NEAR(s.at(14), 0.1, 1e-15);
  EXPECT_NEAR(s.at(1000), 0.1, 1e-15);
  EXPECT_DOUBLE_EQ((RateSchedule{.peak = 2.0, .total_steps = 1}.at(0)), 2.0);
}

// DeepSpeed's WarmupDecayLR, whose step s + 1 is this one's s: log(s + 2) / log(4), then 10 steps
// of a straight line from 1 at step 3 to 0.1 at step 13.
TEST(RateSchedule, WarmsUpAsALogarithmAndFallsInALine) {
  const RateSchedule s{.peak = 1.0,
                       .floor = 0.1,
                       .warmup_steps = 4,
                       .total_steps = 14,
                       .warmup = Warmup::Log,
                       .decay = Decay::Linear};
  EXPECT_DOUBLE_EQ(s.at(0), 0.5);
  EXPECT_DOUBLE_EQ(s.at(1), std::log(3) / std::log(4));
  EXPECT_DOUBLE_EQ(s.at(2), 1.0);
  EXPECT_DOUBLE_EQ(s.at(3), 1.0) << "log 5 / log 4 is more than 1";
  EXPECT_DOUBLE_EQ(s.at(4), 0.1 + 0.9 * 0.9);
  EXPECT_DOUBLE_EQ(s.at(8), 0.1 + 0.9 * 0.5);
  EXPECT_DOUBLE_EQ(s.at(13), 0.1);
  EXPECT_DOUBLE_EQ(s.at(1000), 0.1);
  const RateSchedule at_once{
      .peak = 2.0, .warmup_steps = 1, .total_steps = 1, .warmup = Warmup::Log};
  EXPECT_DOUBLE_EQ(at_once.at(0), 2.0) << "log 2 / log 2: no division by log 1";
}

// Two ranks that look after half of a unit each, with the same gradients as one that has all of it:
// their states make up its state, and those that are filled from it go on as it does. The halves
// end inside a parameter; BF16, so that there are masters.
TEST_P(OptimizerSteps, StatesOfSlicesMakeUpThatOfTheWhole) {
  const ParameterStore::Options options{
      .value_dtype = DType::BF16, .grad_dtype = DType::F32, .ranks = 2};
  Parameter a = whole_parameter("a", {150}, Init::normal(1), true);
  Parameter b = whole_parameter("b", {9, 5}, Init::normal(1), false);
  ParameterStore store(device_, {{"unit", {&a, &b}}}, options);
  store.initialize(1);
  const auto set_gradients = [&](int step) {
    std::vector<double> grads(static_cast<std::size_t>(store.grads().count()));
    const Philox random(static_cast<std::uint64_t>(step), "gradients");
    for (std::size_t i = 0; i < grads.size(); ++i) grads[i] = random.normal(i);
    write_doubles(store.grads(), grads);
  };
  Tensor theirs({store.values().count()}, DType::BF16, device_);  // the two ranks' weights
  device_.copy(theirs, store.values());
  AdamW whole(slices_of(store.parameters()), {.weight_decay = 0.1});
  const auto shard = [&](int rank) {
    const Range range = store.layout().shard(0, rank);
    return AdamW(slices_in(store.units()[0], store.layout().units()[0], range,
                           theirs.view().flat(range.begin, range.count()),
                           store.grads().flat(range.begin, range.count())),
                 {.weight_decay = 0.1});
  };
  // Of each tensor of the whole's state the part that a rank has, and this rank's own.
  const auto for_parts = [&](AdamW& of, const auto& visit) {
    for (const Optimizer::State& part : of.state())
      for (const Optimizer::State& all : whole.state())
        if (all.name == part.name) {
          const View flat = all.value.reshaped({all.value.count()});
          visit(flat.flat(part.begin, part.value.count()), part.value, part.name);
        }
  };
  AdamW first = shard(0), second = shard(1);
  EXPECT_EQ(first.state().size(), 3u) << "128 of a's 150";
  EXPECT_EQ(second.state().size(), 6u) << "a's rest, and b";
  for (int step = 0; step < 3; ++step) {
    set_gradients(step);
    for (AdamW* each : {&whole, &first, &second}) each->step({.learning_rate = 0.01});
  }
  EXPECT_TRUE(same_bits(theirs, store.values()));

  std::int64_t elements = 0;
  for (AdamW* each : {&first, &second})
    for_parts(*each, [&](View of_whole, View own, const std::string& name) {
      EXPECT_TRUE(same_bits(of_whole, own.reshaped({own.count()}))) << name;
      elements += own.count();
    });
  EXPECT_EQ(elements, 3 * (150 + 45));

  AdamW again = shard(0), other = shard(1);
  for (AdamW* each : {&again, &other}) {
    for_parts(*each, [&](View of_whole, View own, const std::string&) {
      device_.copy(own.reshaped({own.count()}), of_whole);
    });
    each->resume(3);
  }
  set_gradients(3);
  for (AdamW* each : {&whole, &again, &other}) each->step({.learning_rate = 0.01});
  EXPECT_TRUE(same_bits(theirs, store.values())) << "they go on as the whole does";
}

}  // namespace
}  // namespace aisc
