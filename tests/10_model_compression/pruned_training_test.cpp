// What is gone stays 0 through updates, momentum and resumed runs, and goes alike on all ranks.
#include "10_model_compression/pruned_training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "common/core/range.h"
#include "common/core/rng.h"
#include "common/model/emulated_device.h"
#include "common/ops/ops.h"
#include "common/train/trainer.h"
#include "tests/10_model_compression/pruned_model.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/drawn.h"
#include "tests/support/error_says.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

using ::testing::ElementsAre;

std::vector<bool> gone(const View& weights) {
  std::vector<bool> zeros;
  for (const double w : to_doubles(weights)) zeros.push_back(w == 0);
  return zeros;
}

// Gradients of 0: the weights are what they were, but for those that go.
TEST(PrunedTraining, HalfOfEightByHand) {
  TestWorld world;
  PrunedModel its(world.rank, {2, 4}, DType::F32);
  write_doubles(its.weight().value(), {0.5, -0.125, 0.25, -2, 0.0625, 4, -0.375, 1});
  ops::fill(its.store->grads(), 0);
  Sgd optimizer(slices_of(its.store->parameters()), {});
  PrunedTraining hook(world.rank, its.model, nullptr, {.sparsity = 0.5, .begin = 1, .end = 2});
  take_pruned_step(optimizer, hook, 0);
  EXPECT_THAT(gone(its.weight().value()), ::testing::Each(false))
      << "the only round is behind the second step: the first takes nothing";
  take_pruned_step(optimizer, hook, 1);
  EXPECT_THAT(to_doubles(its.weight().value()), ElementsAre(0.5, 0, 0, -2, 0, 4, 0, 1))
      << ".0625 .125 .25 and .375 are the four smallest magnitudes of eight";
}

// Of each type, with the momentum of AdamW, masters of short types, and decay.
TEST(PrunedTraining, WhatIsGoneStaysZeroAndTheShareIsExact) {
  const PruneSchedule schedule{.sparsity = 0.9, .begin = 2, .end = 22, .rounds = 5};
  for (const DeviceKind kind : device_kinds())
    for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16}) {
      if (!has_device(kind)) continue;
      TestWorld world(kind);
      PrunedModel its(world.rank, {drawn("rows that are pruned", 3, 11), 13}, dtype);
      AdamW optimizer(slices_of(its.store->parameters()), {});
      PrunedTraining hook(world.rank, its.model, nullptr, schedule);
      std::vector<bool> before(index(its.weight().shape.count()));
      for (std::int64_t step = 0; step < 40; ++step) {
        its.write_gradients(step);
        take_pruned_step(optimizer, hook, step);
        const std::vector<bool> now = gone(its.weight().value());
        ASSERT_EQ(std::count(now.begin(), now.end(), true),
                  pruned_count(sparsity_at(step + 1, schedule), std::ssize(now)))
            << name_of(dtype) << ": the weights that are 0 behind step " << step + 1
            << "; momentum moves what is gone, so it is masked after each update";
        for (std::size_t i = 0; i < now.size(); ++i) {
          ASSERT_TRUE(now[i] || !before[i]) << "weight " << i << " came back in step " << step + 1;
        }
        if (optimizer.master(0)) {
          ASSERT_EQ(gone(optimizer.master(0)), now)
              << name_of(dtype) << ": the F32 master of what is gone is 0, too";
        }
        before = now;
      }
      const std::vector<bool> bias = gone(optimizer.slices()[1].weight);
      EXPECT_EQ(std::count(bias.begin(), bias.end(), true), 0) << "a bias is not pruned";
      const PrunedWeights weights = pruned_weights(optimizer.slices());
      EXPECT_EQ(weights.all, its.weight().shape.count());
      EXPECT_EQ(weights.zeros, std::count(before.begin(), before.end(), true));
    }
}

// The oracle: momentum, masks and sorting written out.
TEST(PrunedTraining, IsWhatIsWrittenOut) {
  const PruneSchedule schedule{.sparsity = 0.8, .begin = 0, .end = 10, .rounds = 4};
  TestWorld world;
  PrunedModel its(world.rank, {5, 7}, DType::F64);
  Sgd optimizer(slices_of(its.store->parameters()), {.momentum = 0.9});
  PrunedTraining hook(world.rank, its.model, nullptr, schedule);
  std::vector<double> w = to_doubles(its.weight().value()), v(w.size());
  std::vector<bool> stays(w.size(), true);
  for (std::int64_t step = 0; step < 15; ++step) {
    its.write_gradients(step);
    const std::vector<double> g = to_doubles(its.weight().grad());
    take_pruned_step(optimizer, hook, step);
    for (std::size_t i = 0; i < w.size(); ++i) {
      v[i] = 0.9 * v[i] + g[i];
      w[i] = stays[i] ? w[i] - 0.05 * v[i] : 0;
    }
    std::vector<std::size_t> order(w.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return std::abs(w[a]) < std::abs(w[b]); });
    const double left =
        1 - std::floor(std::min<double>(static_cast<double>(step) + 1, 10) * 0.4) / 4;
    const auto goes = std::llround(0.8 * (1 - left * left * left) * static_cast<double>(w.size()));
    for (std::int64_t i = 0; i < goes; ++i) w[order[index(i)]] = 0, stays[order[index(i)]] = false;
    const std::vector<double> found = to_doubles(its.weight().value());
    for (std::size_t i = 0; i < w.size(); ++i)
      ASSERT_NEAR(found[i], w[i], 1e-12) << "weight " << i << " behind step " << step + 1;
  }
}

// Weights, and the optimizer's state, are all that goes on: no mask.
TEST(PrunedTraining, AResumedRunIsTheSame) {
  const PruneSchedule schedule{.sparsity = 0.75, .begin = 1, .end = 13, .rounds = 3};
  for (const DType dtype : {DType::F32, DType::BF16})
    for (const std::int64_t at : {3, 5, 7, 14}) {
      TestWorld world;
      PrunedModel whole(world.rank, {6, 9}, dtype), again(world.rank, {6, 9}, dtype);
      AdamW first(slices_of(whole.store->parameters()), {}),
          second(slices_of(again.store->parameters()), {});
      PrunedTraining hook(world.rank, whole.model, nullptr, schedule),
          other(world.rank, again.model, nullptr, schedule);
      for (std::int64_t step = 0; step < 20; ++step) {
        if (step == at) {
          world.device.copy(again.store->values(), whole.store->values());
          const auto from = first.state(), to = second.state();
          for (std::size_t i = 0; i < from.size(); ++i)
            world.device.copy(to[i].value, from[i].value);
          second.resume(step);
        }
        whole.write_gradients(step);
        take_pruned_step(first, hook, step);
        if (step < at) continue;
        again.write_gradients(step);
        take_pruned_step(second, other, step);
        ASSERT_TRUE(same_bits(again.weight().value(), whole.weight().value()))
            << name_of(dtype) << ": goes on behind step " << at << ", differs in step " << step + 1;
      }
    }
}

// A dense run that goes on behind the last round.
TEST(PrunedTraining, ADenseRunIsPrunedWhereItGoesOn) {
  TestWorld world;
  PrunedModel its(world.rank, {4, 10}, DType::F32);
  Sgd optimizer(slices_of(its.store->parameters()), {});
  optimizer.resume(100);
  PrunedTraining hook(world.rank, its.model, nullptr, {.sparsity = 0.5, .begin = 0, .end = 10});
  take_pruned_step(optimizer, hook, 100);
  EXPECT_EQ(pruned_weights(optimizer.slices()).zeros, 20);
}

// Rounds behind steps 1, 2 and 3; the second step is skipped, as by a scaled loss. Then the run
// goes on elsewhere, before or behind the step that makes up for it.
TEST(PrunedTraining, ARoundThatWasSkippedIsMadeUpFor) {
  const PruneSchedule schedule{.sparsity = 0.6, .begin = 0, .end = 4, .rounds = 4};
  TestWorld world;
  PrunedModel its(world.rank, {10, 10}, DType::F32);
  Sgd optimizer(slices_of(its.store->parameters()), {.momentum = 0.9});
  PrunedTraining hook(world.rank, its.model, nullptr, schedule),
      other(world.rank, its.model, nullptr, schedule);
  const auto zeros = [&] { return pruned_weights(optimizer.slices()).zeros; };
  take_pruned_step(optimizer, hook, 0);
  EXPECT_EQ(zeros(), pruned_count(sparsity_at(1, schedule), 100));
  take_pruned_step(optimizer, hook, 2);
  EXPECT_EQ(zeros(), pruned_count(sparsity_at(3, schedule), 100))
      << "the second step is skipped, the third takes what both rounds take";
  take_pruned_step(optimizer, other, 5);
  EXPECT_EQ(zeros(), 60) << "the fourth, of the last round, is skipped, and the run goes on";
}

// Before the first round a weight that happens to be 0 is trained as any other.
TEST(PrunedTraining, AZeroIsNotGoneBeforeTheFirstRound) {
  TestWorld world;
  PrunedModel its(world.rank, {2, 2}, DType::F32);
  write_doubles(its.weight().value(), {0, 1, 2, 3});
  Sgd optimizer(slices_of(its.store->parameters()), {});
  PrunedTraining hook(world.rank, its.model, nullptr, {.sparsity = 0.5, .begin = 5, .end = 6});
  its.write_gradients(1);
  take_pruned_step(optimizer, hook, 0);
  EXPECT_NE(to_doubles(its.weight().value())[0], 0);
}

// Elements [begin, end) of what this rank has of the matrix, and all of the bias.
std::vector<OptimizerSlice> part_of_matrix(PrunedModel& its, const Range& range) {
  std::vector<OptimizerSlice> slices = slices_of(its.store->parameters());
  slices[0].weight = slices[0].weight.flat(range.begin, range.count());
  slices[0].gradient = slices[0].gradient.flat(range.begin, range.count());
  slices[0].begin = range.begin;
  return slices;
}

constexpr PruneSchedule kOfRanks{.sparsity = 0.85, .begin = 0, .end = 9, .rounds = 3};
const Shape kOfAllRanks{6, 12};

// The matrix behind each of 12 steps, of one rank.
std::vector<std::vector<double>> of_one_rank() {
  TestWorld world;
  PrunedModel its(world.rank, kOfAllRanks, DType::F64);
  AdamW optimizer(slices_of(its.store->parameters()), {});
  PrunedTraining hook(world.rank, its.model, nullptr, kOfRanks);
  std::vector<std::vector<double>> all;
  for (std::int64_t step = 0; step < 12; ++step) {
    its.write_gradients(step);
    take_pruned_step(optimizer, hook, step);
    all.push_back(to_doubles(its.weight().value()));
  }
  return all;
}

// Shards of one rank less than there are: one has nothing. Or copies.
TEST(PrunedTraining, DataRanksPruneWhatOneRankPrunes) {
  const auto expected = of_one_rank();
  for (const bool shards : {true, false})
    for (const int ranks : {2, 3, 4})
      launch({.ranks = ranks, .bind = false}, [&](const Rank& rank) {
        PrunedModel its(rank, kOfAllRanks, DType::F64);
        const int me = rank.world.rank();
        const std::int64_t n = its.weight().shape.count();
        const Range mine = !shards           ? Range{0, n}
                           : me == ranks - 1 ? Range{n, n}
                                             : share_of(n, me, ranks - 1);
        std::vector<OptimizerSlice> slices = part_of_matrix(its, mine);
        if (mine.count() == 0) slices.erase(slices.begin());
        AdamW optimizer(std::move(slices), {});
        PrunedTraining hook(rank, its.model, nullptr, kOfRanks);
        for (std::size_t step = 0; step < expected.size(); ++step) {
          its.write_gradients(static_cast<std::int64_t>(step));
          take_pruned_step(optimizer, hook, static_cast<std::int64_t>(step));
          const std::vector<double> found = to_doubles(its.weight().value());
          for (std::int64_t i = mine.begin; i < mine.end; ++i)
            ASSERT_EQ(found[index(i)], expected[step][index(i)])
                << "weight " << i << " on rank " << me << " of " << ranks << " behind step "
                << step + 1 << (shards ? ", of shards" : ", of copies");
        }
      });
}

// Two tensor ranks with half of the rows or of the columns, and two data ranks with all of it or
// with shards of that.
TEST(PrunedTraining, PartsOfLayersArePrunedAsTheWhole) {
  const auto expected = of_one_rank();
  for (const int split_dim : {0, 1})
    for (const bool shards : {false, true})
      launch({.ranks = 4, .bind = false}, [&](const Rank& rank) {
        Mesh mesh(rank.world, {.dp = 2, .tp = 2});
        PrunedModel its(rank, kOfAllRanks, DType::F64, split_dim, mesh.place().tp, 2);
        const std::int64_t n = its.weight().shape.count();
        const Range mine = shards ? share_of(n, mesh.place().dp, 2) : Range{0, n};
        AdamW optimizer(part_of_matrix(its, mine), {});
        PrunedTraining hook(rank, its.model, &mesh, kOfRanks);
        for (std::size_t step = 0; step < expected.size(); ++step) {
          its.write_gradients(static_cast<std::int64_t>(step));
          take_pruned_step(optimizer, hook, static_cast<std::int64_t>(step));
          const std::vector<double> found = to_doubles(its.weight().value());
          for (const GlobalRun& run : global_runs(its.weight(), mine))
            for (std::int64_t i = 0; i < run.count; ++i)
              ASSERT_EQ(found[index(run.local + i)], expected[step][index(run.global + i)])
                  << "split along " << split_dim << ", element " << run.global + i
                  << " behind step " << step + 1;
        }
      });
}

TEST(PrunedTrainingGiven, RefusesPartsThatAreNotEqualTimesTheWhole) {
  EXPECT_TRUE(error_says(
      [] {
        launch({.ranks = 2, .bind = false}, [](const Rank& rank) {
          PrunedModel its(rank, {2, 4}, DType::F32);
          Sgd optimizer(part_of_matrix(its, {0, rank.world.rank() == 0 ? 8 : 3}), {});
          PrunedTraining hook(rank, its.model, nullptr, {.sparsity = 0.5});
          take_pruned_step(optimizer, hook, 0);
        });
      },
      {"pruning blocks.0.mlp.fc.weight: of its 8 elements ranks have 11 together, expected each "
       "element as often as any other"}));
}

// A target that needs 6 of 60 columns, of samples fewer than columns, whose columns look alike: a
// dense fit is one of many. The error of the weights behind 400 steps, of which the first 200
// prune.
double error_of_sparse_fit(std::uint64_t seed, std::int64_t rounds) {
  constexpr std::int64_t kColumns = 60, kSamples = 40, kNeeded = 6, kSteps = 400;
  const Philox random(seed, "samples"), target(seed, "target");
  std::vector<double> x(index(kSamples * kColumns)), wanted(index(kColumns)), y(index(kSamples));
  for (std::uint64_t i = 0; i < x.size(); ++i)
    x[i] = random.normal(i) + 0.7 * random.normal(x.size() + i / index(kColumns));
  for (std::int64_t j = 0; j < kNeeded; ++j)
    wanted[index(j * kColumns / kNeeded)] =
        (j % 2 == 0 ? 1 : -1) * (1 + 0.2 * std::abs(target.normal(static_cast<std::uint64_t>(j))));
  const auto row_times = [&](std::int64_t n, const std::vector<double>& w) {
    return std::inner_product(w.begin(), w.end(), x.begin() + n * kColumns, 0.0);
  };
  for (std::int64_t n = 0; n < kSamples; ++n) y[index(n)] = row_times(n, wanted);

  TestWorld world;
  PrunedModel its(world.rank, {1, kColumns}, DType::F64);
  ops::scale(its.store->values(), its.store->values(), 0.1);
  Sgd optimizer(slices_of(its.store->parameters()), {.momentum = 0.9});
  const PruneSchedule schedule{
      .sparsity = 0.9, .begin = rounds == 1 ? 199 : 0, .end = 200, .rounds = rounds};
  PrunedTraining hook(world.rank, its.model, nullptr, schedule);
  std::vector<double> w;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    w = to_doubles(its.weight().value());
    std::vector<double> g(index(kColumns));
    for (std::int64_t n = 0; n < kSamples; ++n) {
      const double off = (row_times(n, w) - y[index(n)]) / kSamples;
      for (std::int64_t c = 0; c < kColumns; ++c) g[index(c)] += off * x[index(n * kColumns + c)];
    }
    ops::fill(its.store->grads(), 0);
    write_doubles(its.weight().grad(), g);
    hook.before(optimizer, step);
    optimizer.step({.learning_rate = 0.02});
    hook.after(optimizer, step);
  }
  w = to_doubles(its.weight().value());
  double error = 0;
  for (std::size_t c = 0; c < w.size(); ++c) error += (w[c] - wanted[c]) * (w[c] - wanted[c]);
  return std::sqrt(error / std::inner_product(wanted.begin(), wanted.end(), wanted.begin(), 0.0));
}

TEST(PrunedTraining, RoundsBeatOneShotAtNinetyPercent) {
  double once = 0, in_rounds = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    once += error_of_sparse_fit(seed, 1);
    in_rounds += error_of_sparse_fit(seed, 20);
  }
  EXPECT_LT(in_rounds, 0.1 * once)
      << "mean error of the weights of eight fits, of which 90 % go: " << once / 8 << " at once, "
      << in_rounds / 8 << " in 20 rounds";
}

// What differs from the plain run of a GPT: a share of zeros, on one rank.
TEST(PrunedTraining, TrainsAGptWithZeros) {
  TrainConfig config;
  config.model = odd_config(DType::F32);
  config.batch = 2;
  config.steps = 6;
  std::vector<std::uint8_t> text(100);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::uint8_t>(i * i % 13);
  launch({.ranks = 1, .bind = false}, [&](const Rank& rank) {
    Trainer trainer(rank, config, pruned({}, {.sparsity = 0.6, .begin = 0, .end = 4, .rounds = 2}));
    const BatchSampler data(text, config.model.context, 1);
    for (int step = 0; step < 6; ++step) trainer.step(data);
    const PrunedWeights weights = pruned_weights(trainer.optimizer().slices());
    EXPECT_EQ(weights.all, 2 * 12 * 15 * 15) << "four matrices of 3, 1, 4 and 4 times 15 * 15";
    EXPECT_EQ(weights.zeros, 2 * (405 + 135 + 540 + 540));
  });
}

TEST(PrunedTrainingGiven, ADeviceWithoutNumbersIsLeftAlone) {
  const Machine machine = find_machine("dgx-2");
  TrainConfig config;
  config.model = odd_config(DType::F32);
  config.batch = 2;
  launch(on_machine(machine, 2, {.meta = true}), [&](const Rank& rank) {
    Trainer trainer(rank, config, pruned({}, {.sparsity = 0.5}));
    const std::vector<std::uint8_t> text(100);
    const BatchSampler data(text, config.model.context, 1);
    trainer.step(data);
    EXPECT_EQ(trainer.steps_taken(), 1);
  });
}

TEST(PrunedTrainingGiven, RefusesSchedulesThatMakeNoSense) {
  EXPECT_TRUE(error_says([] { pruned({}, {.sparsity = 2}); }, {"a sparsity of 2"}));
  TestWorld world;
  const Model model;
  EXPECT_TRUE(error_says([&] { PrunedTraining(world.rank, model, nullptr, {.rounds = 0}); },
                         {"0 rounds of pruning"}));
}

}  // namespace
}  // namespace aisc
