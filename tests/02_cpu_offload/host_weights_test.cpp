// Layers whose weights come from the host: when, how many, and what goes home.
#include "02_cpu_offload/host_weights.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "common/model/emulated_device.h"
#include "common/nn/driver.h"
#include "tests/support/error_says.h"
#include "tests/support/toy_model.h"

namespace aisc {
namespace {

using toy::Size;
using toy::Toy;

const ParameterStore::Options kOnHost{.ranks = 1, .values = false, .gradients = false};

// The link moves 64 elements in a second; all else takes no time.
Machine link_of_64() {
  Machine machine = find_machine("limitless");
  machine.host_link = {0, 1.0 / (64 * 8)};
  machine.vector_flops = machine.memory_bandwidth = machine.host_bandwidth =
      std::numeric_limits<double>::infinity();
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

// Layers whose copies take 1, 3 and 1 seconds, and their backward 2.
constexpr double kBackwardSeconds = 2;
double seconds_of_a_step(bool prefetch) {
  const Machine machine = link_of_64();
  double seconds = 0;
  launch(on_machine(machine, 1, {.poison = true}), [&](const Rank& rank) {
    Toy toy(rank, {{64, kBackwardSeconds}, {192, kBackwardSeconds}, {64, kBackwardSeconds}},
            kOnHost);
    HostWeights weights(rank, toy.model, *toy.store, {.prefetch = prefetch});
    const double begin = rank.clock.now();
    step(toy, weights);
    seconds = rank.clock.now() - begin;
  });
  return seconds;
}

// 1 s for the first unit. While its layer computes, 3 s, the second one's come.
TEST(There, TheNextUnitIsOnItsWayWhileALayerComputes) {
  const Machine machine = link_of_64();
  launch(on_machine(machine, 1), [](const Rank& rank) {
    Toy toy(rank, {{64}, {192}, {64}}, kOnHost);
    HostWeights weights(rank, toy.model, *toy.store);
    weights.before_forward(0, {});
    EXPECT_EQ(rank.clock.now(), 1) << "nobody waits for the next unit";
    rank.clock.advance(3);
    weights.before_forward(1, {});
    EXPECT_EQ(rank.clock.now(), 4);
  });
}

TEST(There, TheLayersWeightsHaveArrivedWhenItRuns) {
  const Machine machine = link_of_64();
  launch(on_machine(machine, 1, {.poison = true}), [](const Rank& rank) {
    Toy toy(rank, {{5}, {3}, {4, 0, false, true}}, kOnHost);
    HostWeights weights(rank, toy.model, *toy.store);
    std::map<const Parameter*, double> number;
    for (const OptimizerSlice& slice : weights.slices()) {
      number[slice.parameter] = 7 + static_cast<double>(number.size());
      ops::fill(slice.weight, number[slice.parameter]);
    }
    for (std::size_t layer = 0; layer < 3; ++layer) {
      weights.before_forward(layer, {.training = false});
      std::vector<Parameter*> read = toy.model.layers[layer]->parameters();
      for (Parameter* p : toy.model.layers[layer]->borrows()) read.push_back(p);
      for (const Parameter* p : read)
        for (const double w : p->value().values<double>()) EXPECT_EQ(w, number[p]) << p->name;
      Saved saved;
      weights.after_forward(layer, {.training = false}, saved);
    }
    EXPECT_EQ(rank.device.ledger()[Purpose::Parameters].live_bytes, 0) << "behind the last layer";
  });
}

TEST(There, NothingElseIsOnTheDevice) {
  const Machine machine = link_of_64();
  launch(on_machine(machine, 1), [](const Rank& rank) {
    Toy toy(rank, {{64}, {128}, {256}, {64}}, kOnHost);
    HostWeights weights(rank, toy.model, *toy.store, {.prefetch = false});
    std::vector<std::int64_t> elements;
    for (std::size_t layer = 0; layer < 4; ++layer) {
      weights.before_forward(layer, {});
      elements.push_back(rank.device.ledger()[Purpose::Parameters].live_bytes / 8);
      for (std::size_t unit = 0; unit < 4; ++unit) EXPECT_EQ(weights.is_here(unit), unit == layer);
    }
    EXPECT_EQ(elements, (std::vector<std::int64_t>{64, 128, 256, 64}));
  });
}

// A contribution that overwrites loses a micro-batch's, one that adds to the step before has too
// much.
TEST(Home, GradientsOfAllMicroBatchesAddUpOnTheHost) {
  launch({.ranks = 1, .device = {.poison = true}, .bind = false}, [](const Rank& rank) {
    Toy toy(rank, {{5}, {3, 0, true}, {4, 0, false, true}}, kOnHost);
    HostWeights weights(rank, toy.model, *toy.store);
    for (int i = 0; i < 2; ++i) {
      step(toy, weights, 3);
      EXPECT_EQ(gradients_of(weights), toy.without_padding(toy.sums(1, 3))) << "step " << i;
    }
  });
}

// Copies are late there: what nobody waits for is not at home.
TEST(Home, GradientsOfAllMicroBatchesAddUpInVirtualTime) {
  const Machine machine = link_of_64();
  launch(on_machine(machine, 1, {.poison = true}), [](const Rank& rank) {
    Toy toy(rank, {{5}, {3, 0, true}, {4, 0, false, true}}, kOnHost);
    HostWeights weights(rank, toy.model, *toy.store);
    step(toy, weights, 3);
    EXPECT_EQ(gradients_of(weights), toy.without_padding(toy.sums(1, 3)));
  });
}

TEST(Home, GradientsGoWhileTheLayerBelowComputes) {
  // Forward 1 + 3 + 1; backward 2, 3 + 2, 1 + 2, and the last gradient's way home. The others are
  // at home by then.
  EXPECT_EQ(seconds_of_a_step(false), 5 + 2 + 5 + 3 + 1);
  // The next unit comes while a layer computes: 1 s are left of the second one's 3 in backward. Its
  // gradient, 3 s, is waited for 1 s behind the first layer, which has less to compute.
  EXPECT_EQ(seconds_of_a_step(true), 5 + 2 + (1 + 2) + 2 + 1 + 1);
}

TEST(Home, GradientsOfAllRanksAddUp) {
  launch({.ranks = 3, .device = {.poison = true}, .bind = false}, [](const Rank& rank) {
    Toy toy(rank, {{500}, {3, 0, true}, {400, 0, false, true}},
            {.ranks = 3, .values = false, .gradients = false});
    HostWeights weights(rank, toy.model, *toy.store);
    step(toy, weights, 2);
    const std::vector<double> sums = toy.sums(3, 2);
    std::size_t compared = 0;
    for (const OptimizerSlice& slice : weights.slices()) {
      std::size_t unit = 0;
      while (toy.store->parameters()[unit] != slice.parameter) ++unit;
      const std::int64_t begin =
          toy.store->layout().units()[unit].parameters[0].begin + slice.begin;
      for (std::int64_t i = 0; i < slice.gradient.count(); ++i, ++compared)
        EXPECT_EQ(slice.gradient.data<double>()[i], sums[static_cast<std::size_t>(begin + i)])
            << slice.name;
    }
    EXPECT_GT(compared, 0u);
  });
}

TEST(Home, OneLayersGradientsAreOnTheirWayWhileTheNextOnesAreMade) {
  const Machine machine = link_of_64();
  launch(on_machine(machine, 1, {.poison = true}), [](const Rank& rank) {
    Toy toy(rank, {{64}, {128}, {256}, {64}}, kOnHost);
    HostWeights weights(rank, toy.model, *toy.store);
    step(toy, weights);
    EXPECT_EQ(rank.device.ledger()[Purpose::Gradients].live_bytes, 0);
    EXPECT_EQ(rank.device.ledger()[Purpose::Gradients].peak_bytes, 8 * (256 + 128));
    EXPECT_EQ(rank.device.ledger()[Purpose::Parameters].live_bytes, 0);
    EXPECT_EQ(rank.device.ledger()[Purpose::Parameters].peak_bytes, 8 * (256 + 128));
  });
}

TEST(ThereAndHomeGiven, TheLinkCarriesEveryUnitTwiceAndItsGradientOnce) {
  launch({.ranks = 1, .bind = false}, [](const Rank& rank) {
    Toy toy(rank, {{64}, {128}, {64}}, kOnHost);
    HostWeights weights(rank, toy.model, *toy.store);
    const Copied before = rank.device.copied();
    step(toy, weights, 2);
    const Copied after = rank.device.copied();
    // The last layer's stays from forward to backward, the first one's for the next micro-batch.
    EXPECT_EQ(after.to_device - before.to_device, 8 * (2 * (2 * (64 + 128) + 64) - 64));
    EXPECT_EQ(after.from_device - before.from_device, 8 * 2 * (64 + 128 + 64));
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
