// Layers whose weights come from the host: when, how many, and what goes home.
#include "02_cpu_offload/host_weights.h"

#include <gtest/gtest.h>

#include <limits>

#include "common/model/emulated_device.h"
#include "common/nn/driver.h"
#include "tests/support/error_says.h"
#include "tests/support/ledger_checks.h"
#include "tests/support/toy_model.h"

namespace aisc {
namespace {

using toy::Size;
using toy::Toy;

const ParameterStore::Options kOnHost{.ranks = 1, .values = false, .gradients = false};

// The link moves 64 elements in a second; all else takes no time.
Machine slow_link() {
  Machine machine = find_machine("limitless");
  machine.host_link = {0, 1.0 / (64 * 8)};
  machine.vector_flops = machine.memory_bandwidth = std::numeric_limits<double>::infinity();
  return machine;
}

// The step of one micro-batch.
void step(const Toy& toy, HostWeights& weights, int micro_batches = 1) {
  weights.begin();
  LayerHook* const hooks[] = {&weights};
  const Tensor x = Tensor::zeros({1}, DType::F64, toy.rank.device);
  for (int m = 0; m < micro_batches; ++m)
    forward_backward(toy.model, x, x,
                     {.micro_batch = m, .last_micro_batch = m + 1 == micro_batches}, 1, hooks);
  weights.finish();
}

// What all ranks' hosts have of the gradients, as one flat buffer without padding.
std::vector<double> gradients_of(const HostWeights& weights) {
  std::vector<double> all;
  for (const OptimizerSlice& slice : weights.slices())
    for (const double g : slice.gradient.values<double>()) all.push_back(g);
  return all;
}

TEST(ThereAndHome, GradientsOfAllMicroBatchesAddUpOnTheHost) {
  launch({.ranks = 1, .device = {.poison = true}, .bind = false}, [](const Rank& rank) {
    Toy toy(rank, {{5}, {3, 0, true}, {4, 0, false, true}}, kOnHost);
    HostWeights weights(rank, toy.model, *toy.store);
    for (int i = 0; i < 2; ++i) {  // a step begins anew
      step(toy, weights, 3);
      EXPECT_EQ(gradients_of(weights), toy.without_padding(toy.sums(1, 3)));
    }
  });
}

TEST(ThereAndHome, TheDeviceHasWhatTheLayerNeeds) {
  const Machine machine = slow_link();
  launch(on_machine(machine, 1, {.poison = true}), [](const Rank& rank) {
    Toy toy(rank, {{64}, {128}, {256}, {64}}, kOnHost);
    HostWeights weights(rank, toy.model, *toy.store, {.prefetch = false});
    const auto live = [&] { return rank.device.ledger()[Purpose::Parameters].live_bytes; };
    std::vector<std::int64_t> bytes;
    Saved saved;
    for (std::size_t layer = 0; layer < 4; ++layer) {
      weights.before_forward(layer, {});
      bytes.push_back(live() / 8);
    }
    for (std::size_t layer = 4; layer-- > 0;) {
      weights.before_backward(layer, {}, saved);
      bytes.push_back(live() / 8);
      for (std::size_t unit = 0; unit < 4; ++unit) EXPECT_EQ(weights.is_here(unit), unit == layer);
      weights.after_backward(layer, {});
    }
    EXPECT_EQ(bytes, (std::vector<std::int64_t>{64, 128, 256, 64, 64, 256, 128, 64}));
    weights.finish();
    EXPECT_EQ(live(), 0);
    EXPECT_EQ(rank.device.ledger()[Purpose::Gradients].live_bytes, 0);
    EXPECT_EQ(rank.device.ledger()[Purpose::Gradients].peak_bytes, 8 * (256 + 128));
  });
}

// Layers whose copies take 1, 3 and 1 seconds, and their backward 2.
constexpr double kBackward = 2;
double seconds_of_a_step(bool prefetch) {
  const Machine machine = slow_link();
  double seconds = 0;
  launch(on_machine(machine, 1, {.poison = true}), [&](const Rank& rank) {
    Toy toy(rank, {{64, kBackward}, {192, kBackward}, {64, kBackward}}, kOnHost);
    HostWeights weights(rank, toy.model, *toy.store, {.prefetch = prefetch});
    const double begin = rank.clock.now();
    step(toy, weights);
    seconds = rank.clock.now() - begin;
  });
  return seconds;
}

TEST(ThereAndHomeGiven, CopiesTakeTheirTimeOnOneLaneEachWay) {
  // Forward 1 + 3 + 1; backward 2, 3 + 2, 1 + 2, and the last gradient's way home. The others are
  // at home by then.
  EXPECT_EQ(seconds_of_a_step(false), 5 + 2 + 5 + 3 + 1);
  // The next unit comes while a layer computes: 1 s are left of the second one's 3 in backward. Its
  // gradient, 3 s, is waited for 1 s behind the first layer, which has less to compute.
  EXPECT_EQ(seconds_of_a_step(true), 5 + 2 + (1 + 2) + 2 + 1 + 1);
}

TEST(ThereAndHomeGiven, TheLinkCarriesEveryUnitTwiceAndItsGradientOnce) {
  launch({.ranks = 1, .bind = false}, [](const Rank& rank) {
    Toy toy(rank, {{64}, {128}, {64}}, kOnHost);
    HostWeights weights(rank, toy.model, *toy.store);
    step(toy, weights, 2);
    // The last layer's stays from forward to backward, the first one's for the next micro-batch.
    EXPECT_EQ(weights.to_device_bytes(), 8 * (2 * (2 * (64 + 128) + 64) - 64));
    EXPECT_EQ(weights.to_host_bytes(), 8 * 2 * (64 + 128 + 64));
  });
}

TEST(ThereAndHomeGiven, DeferredGradientsAreRefused) {
  launch({.ranks = 1, .bind = false}, [](const Rank& rank) {
    Toy toy(rank, {{4}}, kOnHost);
    HostWeights weights(rank, toy.model, *toy.store);
    DeferredGrads deferred;
    Saved saved;
    EXPECT_TRUE(error_says([&] { weights.before_backward(0, {.deferred = &deferred}, saved); },
                           {"offload", "cannot be deferred"}));
  });
}

}  // namespace
}  // namespace aisc
