// Keep, recompute or offload: the search against all plans, and its figures against a run's.
#include "02_cpu_offload/saving_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <utility>

#include "02_cpu_offload/saved_to_host.h"
#include "common/model/emulated_device.h"
#include "common/nn/driver.h"
#include "common/nn/sequence.h"
#include "tests/support/tensors.h"
#include "tests/support/toy_model.h"

namespace aisc {
namespace {

using enum Saving;

constexpr double kForwardSeconds = 2, kOwnBackwardSeconds = 4;

// Each computes 2 s and 4 s, and saves 100 bytes of which 10 are its input; a copy takes 3 s.
std::vector<LayerCost> alike(std::size_t count) {
  std::vector<LayerCost> layers(count, {.forward_seconds = kForwardSeconds,
                                        .backward_seconds = kOwnBackwardSeconds,
                                        .copy_seconds = 3,
                                        .saved_bytes = 100,
                                        .input_bytes = 10});
  layers.back().moves = false;
  return layers;
}

struct Figures {
  double seconds;
  std::int64_t peak_bytes;
  bool operator==(const Figures&) const = default;
};
void PrintTo(const Figures& f, std::ostream* out) {
  *out << f.seconds << " s, " << f.peak_bytes << " bytes";
}
Figures figures(const std::vector<LayerCost>& layers, std::vector<Saving> choices) {
  const SavingPlan plan = plan_of(layers, std::move(choices));
  return {plan.seconds, plan.peak_bytes};
}

TEST(KeepRecomputeOrOffload, WhatEachCosts) {
  const std::vector<LayerCost> three = alike(3);
  EXPECT_EQ(figures(three, {Keep, Keep, Keep}), (Figures{18, 300}));
  // Forward again, and the input alone is kept.
  EXPECT_EQ(figures(three, {Recompute, Keep, Keep}), (Figures{20, 210}))
      << "three layers, the first layer is recomputed: seconds and bytes of the plan";
  EXPECT_EQ(figures(three, {Recompute, Recompute, Recompute}), (Figures{24, 120}));
  // The copy takes 1 s longer than the next layer's forward, and not longer than its backward. It
  // is there beside the next layer's alone.
  EXPECT_EQ(figures(three, {Offload, Keep, Keep}), (Figures{19, 200}))
      << "three layers, the first layer is offloaded: seconds and bytes of the plan";
  EXPECT_EQ(figures(three, {Offload, Offload, Keep}), (Figures{20, 200}));
  EXPECT_EQ(figures(three, {Keep, Offload, Keep}), (Figures{19, 300}));
}

TEST(KeepRecomputeOrOffload, ALayerThatRecomputesHidesMoreOfTheCopyBelow) {
  std::vector<LayerCost> two = alike(2);
  two[0].copy_seconds = 7;
  // 5 s beside the forward of 2; 3 beside the backward of 4; 1 where forward runs again.
  EXPECT_EQ(figures(two, {Offload, Keep}), (Figures{12 + 5 + 3, 200}));
  EXPECT_EQ(figures(two, {Offload, Recompute}), (Figures{12 + 2 + 5 + 1, 200}));
}

TEST(KeepRecomputeOrOffload, SmallTensorsStay) {
  std::vector<LayerCost> three = alike(3);
  three[0].stays_bytes = 30;
  EXPECT_EQ(figures(three, {Offload, Keep, Keep}), (Figures{19, 30 + 200}));
}

SavingPlan best_of_all(const std::vector<LayerCost>& layers, std::int64_t limit) {
  std::size_t plans = 1;
  for (std::size_t i = 0; i < layers.size(); ++i) plans *= 3;
  SavingPlan best{.layers = {}, .seconds = std::numeric_limits<double>::infinity()};
  for (std::size_t number = 0; number < plans; ++number) {
    std::vector<Saving> choices;
    bool allowed = true;
    for (std::size_t i = 0, rest = number; i < layers.size(); ++i, rest /= 3) {
      choices.push_back(std::array{Keep, Recompute, Offload}[rest % 3]);
      allowed &= choices.back() != Recompute || layers[i].recomputes;
      allowed &= choices.back() != Offload || layers[i].moves;
    }
    if (!allowed) continue;
    const SavingPlan plan = plan_of(layers, std::move(choices));
    if (plan.peak_bytes <= limit && plan.seconds < best.seconds) best = plan;
  }
  return best;
}

// Seconds are whole: sums are equal in any order.
TEST(KeepRecomputeOrOffload, TheSearchFindsTheQuickestOfAllPlans) {
  std::mt19937 random(7);
  const auto draw = [&](int least, int most) {
    return std::uniform_int_distribution(least, most)(random);
  };
  int found_some = 0, found_none = 0;
  for (int round = 0; round < 60; ++round) {
    const int count = round < 6 ? 10 : draw(1, 7);
    std::vector<LayerCost> layers;
    for (int i = 0; i < count; ++i) {
      const int saved = draw(5, 40);
      layers.push_back({.forward_seconds = static_cast<double>(draw(1, 9)),
                        .backward_seconds = static_cast<double>(draw(1, 20)),
                        .copy_seconds = static_cast<double>(draw(1, 25)),
                        .saved_bytes = saved,
                        .input_bytes = draw(1, saved),
                        .stays_bytes = draw(0, 3),
                        .recomputes = draw(0, 3) > 0,
                        .moves = draw(0, 3) > 0});
    }
    const std::int64_t all = plan_of(layers, std::vector<Saving>(layers.size(), Keep)).peak_bytes;
    for (const double share : {.3, .5, .7, 1.0}) {
      const auto limit = static_cast<std::int64_t>(share * static_cast<double>(all));
      const std::optional<SavingPlan> fastest = fastest_within(layers, limit);
      const SavingPlan best = best_of_all(layers, limit);
      ASSERT_EQ(fastest.has_value(), !best.layers.empty()) << "round " << round;
      ++(fastest ? found_some : found_none);
      if (!fastest) continue;
      EXPECT_EQ(fastest->seconds, best.seconds) << "round " << round << ", limit " << limit;
      EXPECT_LE(fastest->peak_bytes, limit);
      const SavingPlan again = plan_of(layers, fastest->layers);
      EXPECT_EQ(again.seconds, fastest->seconds);
    }
  }
  EXPECT_GT(found_some, 20);
  EXPECT_GT(found_none, 5);
}

// Saves a tensor of its own beside what it hands on, which is one number.
class SavingLayer final : public Layer {
 public:
  SavingLayer(const Rank& rank, std::string name, std::int64_t count, double forward,
              double backward, int* forwards = nullptr)
      : Layer(rank, std::move(name)),
        count_(count),
        forward_(forward),
        backward_(backward),
        forwards_(forwards) {}
  Tensor forward(Tensor x, Saved& saved, const Pass& /*pass*/) const override {
    Tensor y({1}, DType::F64, rank_.device);
    saved.push(Tensor({count_}, DType::F64, rank_.device));
    y.data<double>()[0] = x.data<double>()[0] + 1;
    if (rank_.clock.is_virtual()) rank_.clock.advance(forward_);
    if (forwards_) ++*forwards_;
    return y;
  }
  Tensor backward(Tensor dy, Saved& saved, const Pass& /*pass*/) override {
    const Tensor own = saved.pop();
    if (rank_.clock.is_virtual()) rank_.clock.advance(backward_);
    return dy;
  }

 private:
  const std::int64_t count_;
  const double forward_, backward_;
  int* const forwards_;
};

std::unique_ptr<Layer> recomputed_if(bool is, const Rank& rank, std::unique_ptr<Layer> layer) {
  if (!is) return layer;
  return std::make_unique<Recomputed>(rank, std::move(layer));
}

constexpr std::int64_t kThousand = 1000;  // elements, which the link moves in a second

// Seconds, and thousands of elements at most: single numbers are between layers, too.
Figures of_a_run(const std::vector<LayerCost>& layers, const std::vector<Saving>& choices) {
  Machine machine = find_machine("limitless");
  machine.host_link = {0, 1.0 / (8 * kThousand)};
  machine.memory_bandwidth = machine.vector_flops = std::numeric_limits<double>::infinity();
  Figures found{};
  launch(on_machine(machine, 1), [&](const Rank& rank) {
    Model model;
    std::vector<bool> away;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      auto layer =
          std::make_unique<SavingLayer>(rank, "layer", layers[i].saved_bytes * kThousand,
                                        layers[i].forward_seconds, layers[i].backward_seconds);
      model.layers.push_back(recomputed_if(choices[i] == Recompute, rank, std::move(layer)));
      away.push_back(choices[i] == Offload);
    }
    model.loss = std::make_unique<toy::ToyLoss>();
    SavedToHost hook(rank, model, {.layers = away});
    LayerHook* const hooks[] = {&hook};
    const Tensor x = Tensor::zeros({1}, DType::F64, rank.device);
    const double begin = rank.clock.now();
    forward_backward(model, x, x, {}, 1, hooks);
    found = {rank.clock.now() - begin, rank.device.ledger().total.peak_bytes / 8 / kThousand};
  });
  return found;
}

TEST(KeepRecomputeOrOffloadGiven, AStepTakesWhatThePlanSays) {
  std::vector<LayerCost> layers;
  for (const int saved : {3, 1, 5, 2, 4})
    layers.push_back({.forward_seconds = static_cast<double>(1 + saved % 2),
                      .backward_seconds = static_cast<double>(2 + saved % 3),
                      .copy_seconds = static_cast<double>(saved),
                      .saved_bytes = saved});
  for (int number = 0; number < 162; ++number) {  // the last layer's stays
    std::vector<Saving> choices;
    for (int i = 0, rest = number; i < 5; ++i, rest /= 3)
      choices.push_back(std::array{Keep, Recompute, Offload}[static_cast<std::size_t>(rest % 3)]);
    EXPECT_EQ(figures(layers, choices), of_a_run(layers, choices)) << "plan " << number;
  }
}

// Chen et al., arXiv 1604.06174, section 4: of n layers every k keep their input alone.
class SublinearMemory : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Layers, SublinearMemory, ::testing::Values(16, 64, 100));

struct Chunked {
  std::int64_t tensors = 0;  // that are there at most
  int forwards = 0;
};
// Layers that save their input, which is all that there is.
class KeepsItsInput final : public Layer {
 public:
  KeepsItsInput(const Rank& rank, int& forwards) : Layer(rank, "layer"), forwards_(forwards) {}
  Tensor forward(Tensor x, Saved& saved, const Pass& /*pass*/) const override {
    Tensor y({kThousand}, DType::F64, rank_.device);
    saved.push(std::move(x));
    ++forwards_;
    return y;
  }
  Tensor backward(Tensor dy, Saved& saved, const Pass& /*pass*/) override {
    saved.pop();
    return dy;
  }

 private:
  int& forwards_;
};
Chunked chunked(int n, int k) {
  Chunked result;
  launch({.ranks = 1, .bind = false}, [&](const Rank& rank) {
    std::vector<std::unique_ptr<Layer>> chunks;
    for (int begin = 0; begin < n; begin += k) {
      std::vector<std::unique_ptr<Layer>> layers;
      for (int i = begin; i < std::min(n, begin + k); ++i)
        layers.push_back(std::make_unique<KeepsItsInput>(rank, result.forwards));
      chunks.push_back(std::make_unique<Recomputed>(
          rank, std::make_unique<Sequence>(rank, "chunk", std::move(layers))));
    }
    Sequence all(rank, "all", std::move(chunks));
    Saved saved;
    Tensor y = all.forward(Tensor({kThousand}, DType::F64, rank.device), saved, {});
    const std::int64_t in_forward = rank.device.ledger().total.live_bytes;
    EXPECT_EQ(in_forward, 8 * kThousand * ((n + k - 1) / k + 1)) << "inputs of chunks, the output";
    all.backward(std::move(y), saved, {});
    result.tensors = rank.device.ledger().total.peak_bytes / (8 * kThousand);
  });
  return result;
}

TEST_P(SublinearMemory, EveryKthInputAndOneChunk) {
  const int n = GetParam();
  std::int64_t least = n;
  for (int k = 1; k <= n; ++k) {
    if (n % k != 0) continue;
    const Chunked run = chunked(n, k);
    // n/k inputs of chunks, the first of which is one of the k of the chunk that runs again; its
    // output, and the gradient that comes from above.
    EXPECT_EQ(run.tensors, n / k + k - 1 + 2) << "k " << k;
    EXPECT_EQ(run.forwards, 2 * n) << "exactly once more";
    least = std::min(least, run.tensors - 1);
  }
  const int root = static_cast<int>(std::lround(std::sqrt(n)));
  EXPECT_EQ(least, 2 * root) << "where k is the root of n";
}

}  // namespace
}  // namespace aisc
