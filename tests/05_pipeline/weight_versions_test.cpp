// Versions of one stage's weights: which of them micro-batches compute with, and which are kept.
#include "05_pipeline/weight_versions.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "05_pipeline/schedules.h"
#include "tests/05_pipeline/written.h"
#include "tests/support/drawn.h"
#include "tests/support/message_of.h"
#include "tests/support/toy_model.h"

namespace aisc {
namespace {

// Where the step writes: both are the same memory, if the newest is bound.
enum class Writes { WhatIsBound, TheStore };

// Two parameters, of 3 elements and of 2. Each step adds another number to all of them, so that the
// weights tell their version.
struct Stage {
  Stage(const Rank& own, const WeightVersions::Options& options,
        Writes writes_to = Writes::WhatIsBound)
      : rank(own),
        toy(own, {{.count = 3}, {.count = 2}}),
        writes(writes_to),
        versions(own, toy.store->parameters(), options) {
    ops::fill(toy.store->values(), 1);
    without_copies = live_bytes();
  }

  static double step(int update) {
    return static_cast<double>(drawn(fmt::format("step {} of WeightVersions", update), 1, 9));
  }
  static void add(View weights, double by) {
    for (double& w : weights.values<double>()) w += by;
  }
  void update() {
    const double by = step(updates++);
    versions.update([&] {
      ++steps;
      if (writes == Writes::TheStore) return add(toy.store->values(), by);
      for (const Parameter* p : toy.store->parameters()) add(p->value(), by);
    });
  }

  // Of what is bound: "version 2".
  std::string bound() const {
    std::string all;
    std::set<double> weights;
    for (const Parameter* p : toy.store->parameters())
      for (const double w : to_doubles(p->value()))
        if (weights.insert(w).second) all += fmt::format("{}{}", all.empty() ? "" : ", ", w);
    double weight = 1;
    for (int version = 0; version <= updates; weight += step(version++))
      if (weights == std::set<double>{weight}) return fmt::format("version {}", version);
    return "weights of no version: " + all;
  }

  std::int64_t live_bytes() const { return rank.device.ledger()[Purpose::Parameters].live_bytes; }
  std::int64_t copied_bytes() const { return live_bytes() - without_copies; }
  static constexpr std::int64_t kBytes = 5 * 8;  // of a version
  std::int64_t allocations() const { return rank.device.ledger().allocations; }

  Rank rank;
  toy::Toy toy;
  Writes writes;
  WeightVersions versions;
  int updates = 0, steps = 0;  // begun by the test; run by update()
  std::int64_t without_copies = 0;
};

void alone(const std::function<void(const Rank&)>& body) {
  launch({.ranks = 1, .device = {.poison = true}, .bind = false}, body);
}

// Does an action, and tells the version that it computes with; empty: an update.
std::string computes_with(Stage& stage, const Action& a) {
  std::string version;
  if (a.kind == ActionKind::Update) {
    stage.update();
  } else if (a.kind == ActionKind::Forward) {
    stage.versions.use_for_forward(a.micro_batch);
    version = stage.bound();
  } else {
    stage.versions.use_for_backward(a.micro_batch);
    version = stage.bound();
    stage.versions.done(a.micro_batch);
  }
  return version;
}

void run_list(Stage& weights, const Schedule& schedule, std::size_t stage) {
  for (const Action& a : schedule.actions[stage]) computes_with(weights, a);
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

// Of each action of a list: the version that it computes with, "-" of updates, and how many are
// kept after it.
void expect_by_hand(const WeightVersions::Options& options, const std::string& actions,
                    const std::string& versions, const std::string& kept) {
  const std::vector<Action> list = written::list(actions);
  const std::vector<std::string> version = words_of(versions), count = words_of(kept);
  alone([&](const Rank& rank) {
    Stage stage(rank, options);
    stage.versions.begin_run();
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string where = fmt::format("action {}, {}", i, to_string(list[i]));
      EXPECT_EQ(computes_with(stage, list[i]), version[i] == "-" ? "" : "version " + version[i])
          << where << ": computes with the weights of";
      const int expected = std::stoi(count[i]);
      EXPECT_EQ(stage.versions.kept(), expected)
          << where << ": versions in memory after it, the newest among them";
      EXPECT_EQ(stage.copied_bytes(), (expected - 1) * Stage::kBytes)
          << where << ": bytes of copies after it, 40 each";
    }
  });
}

// Three stages, the first: micro-batches 0, 1 and 2 are under way before the first update. From
// then on each forward misses the updates of the two micro-batches before it, and its backward, two
// updates later, computes with the same weights.
TEST(WeightStashing, TheFirstOfThreeStagesByHand) {
  expect_by_hand({.weights = Weights::Stashed, .stages = 3},
                 "F0 F1 F2 B0 U F3 B1 U F4 B2 U F5 B3 U B4 U B5 U",
                 "0  0  0  0  - 1  0  - 2  0  - 3  1  - 2  - 3  -",
                 "1  1  1  1  2 2  2  3 3  2  3 3  2  3 2  2 1  1");
}

// A backward has bound an old version, and an update comes before it is done.
TEST(WeightStashing, StepsTheNewestWhateverIsBoundByHand) {
  for (const Writes writes : {Writes::WhatIsBound, Writes::TheStore})
    alone([&](const Rank& rank) {
      Stage stage(rank, {.weights = Weights::Stashed, .stages = 3}, writes);
      stage.versions.use_for_forward(0);
      stage.update();
      stage.versions.use_for_forward(1);
      stage.versions.use_for_backward(0);
      stage.update();
      EXPECT_EQ(stage.steps, 2) << "each update runs the optimizer's step once";
      EXPECT_EQ(stage.versions.newest(), 2);
      stage.versions.use_for_backward(0);
      EXPECT_EQ(stage.bound(), "version 0") << "for the backward of micro-batch 0";
      stage.versions.use_for_backward(1);
      EXPECT_EQ(stage.bound(), "version 1") << "for the backward of micro-batch 1";
      stage.versions.use_for_forward(2);
      EXPECT_EQ(stage.bound(), "version 2") << "for the forward of micro-batch 2";
      stage.versions.done(0);
      EXPECT_EQ(stage.bound(), "version 2") << "after a micro-batch is done";
      EXPECT_EQ(stage.versions.kept(), 2) << "version 0 is of no micro-batch any more";
    });
}

// What a list of a stage should do, by the formulas of the papers: of stage `stage` of
// options.stages, micro-batch k of a run that begins when the stage has `first` versions.
struct Formulas {
  WeightVersions::Options options;
  int stage = 0, first = 0;

  int forward(int k) const {
    if (options.weights == Weights::TwoBuffered)
      return std::max(0, first + k / options.micro_batches - 1);
    const int missed =
        options.weights == Weights::VerticalSync ? options.stages - 1 : options.stages - 1 - stage;
    return first + std::max(0, k - missed);
  }
  // Those of the micro-batches under way, those of later ones as far as there are any, and the
  // newest.
  std::size_t kept(const std::set<int>& under_way, int next, int newest) const {
    if (options.weights == Weights::Newest) return 1;
    std::set<int> versions{newest};
    for (const int k : under_way) versions.insert(forward(k));
    if (options.weights != Weights::Stashed)
      for (int k = next; forward(k) < newest; ++k) versions.insert(forward(k));
    return versions.size();
  }
};

// Returns the most versions that there were at once.
int expect_versions(const WeightVersions::Options& options, const Schedule& schedule, int stage,
                    int runs) {
  int most = 1;
  alone([&](const Rank& rank) {
    Stage weights(rank, options, Writes::TheStore);
    int newest = 0;
    for (int run = 0; run < runs && !::testing::Test::HasFailure(); ++run) {
      const Formulas formulas{options, stage, newest};
      weights.versions.begin_run();
      std::set<int> under_way;
      int next = 0;
      for (const Action& a : schedule.actions[static_cast<std::size_t>(stage)]) {
        const std::string where = fmt::format("{}, stage {} of {}, run {}, {}: ", schedule.name,
                                              stage, schedule.ranks(), run, to_string(a));
        const std::string version = computes_with(weights, a);
        if (a.kind == ActionKind::Update) {
          ++newest;
        } else {
          const bool takes_newest =
              options.weights == Weights::Newest && a.kind == ActionKind::Backward;
          const int expected = takes_newest ? newest : formulas.forward(a.micro_batch);
          ASSERT_EQ(version, fmt::format("version {}", expected)) << where << "computes with it";
        }
        if (a.kind == ActionKind::Forward) under_way.insert(a.micro_batch), ++next;
        if (a.kind == ActionKind::Backward) under_way.erase(a.micro_batch);
        const int kept = weights.versions.kept();
        most = std::max(most, kept);
        ASSERT_EQ(kept, formulas.kept(under_way, next, newest)) << where << "versions in memory";
        ASSERT_EQ(weights.copied_bytes(), (kept - 1) * Stage::kBytes) << where << "bytes of copies";
      }
      ASSERT_EQ(weights.versions.newest(), newest);
      ASSERT_EQ(weights.steps, newest) << "each update runs the optimizer's step once";
    }
  });
  return most;
}

TEST(WeightStashing, KeepsAVersionForEachStageFromThereOn) {
  for (int p = 1; p <= 5; ++p)
    for (int stage = 0; stage < p; ++stage) {
      const int later = p - stage;
      for (const int m : {1, 2, p, 2 * p, 2 * p + 5}) {
        const int most =
            expect_versions({.weights = Weights::Stashed, .stages = p}, pipedream(p, m), stage, 2);
        if (m >= 2 * later - 1) {
          EXPECT_EQ(most, later) << "stage " << stage << " of " << p << ", " << m
                                 << " micro-batches: p - i + 1 versions at most, i from 1";
        }
      }
    }
  const auto p = static_cast<int>(drawn("stages of WeightStashing", 3, 8));
  const auto stage = static_cast<int>(drawn("stage of WeightStashing", 0, p - 2));
  const auto m = static_cast<int>(drawn("micro-batches of WeightStashing", 2 * p, 3 * p));
  EXPECT_EQ(expect_versions({.weights = Weights::Stashed, .stages = p}, pipedream(p, m), stage, 3),
            p - stage);
}

// The last stage has each backward right after its forward.
TEST(WeightStashing, CopiesNothingThatNobodyNeeds) {
  alone([](const Rank& rank) {
    Stage stage(rank, {.weights = Weights::Stashed, .stages = 3});
    const std::int64_t before = stage.allocations();
    run_list(stage, pipedream(3, 4), 2);
    EXPECT_EQ(stage.allocations(), before) << "allocations: no micro-batch needs an old version";
    EXPECT_EQ(stage.bound(), "version 4");
  });
}

// Each update but the last two makes one copy of two parameters: no micro-batch computes with
// versions 4 and 5.
TEST(WeightStashing, CopiesEachVersionOnce) {
  alone([](const Rank& rank) {
    Stage stage(rank, {.weights = Weights::Stashed, .stages = 3});
    const std::int64_t before = stage.allocations();
    run_list(stage, pipedream(3, 6), 0);
    EXPECT_EQ(stage.allocations() - before, 4 * 2) << "allocations: versions 0, 1, 2 and 3";
  });
}

// Stage 0 of 2 has version max(0, k - 1) when micro-batch k enters, and stage 1 has to keep it.
TEST(WeightStashing, VerticalSyncOfTheLastOfTwoStagesByHand) {
  expect_by_hand({.weights = Weights::VerticalSync, .stages = 2}, "F0 B0 U F1 B1 U F2 B2 U",
                 "0  0  - 0  0  - 1  1  -", "1  1  2 2  1  2 2  1  2");
}

TEST(WeightStashing, VerticalSyncKeepsAsManyVersionsOnAllStages) {
  for (int p = 1; p <= 5; ++p)
    for (int stage = 0; stage < p; ++stage)
      for (const int m : {1, p, 2 * p + 3}) {
        const int most = expect_versions({.weights = Weights::VerticalSync, .stages = p},
                                         pipedream(p, m), stage, 2);
        if (m > 2 * p) {
          EXPECT_EQ(most, p) << "stage " << stage << " of " << p;
        }
      }
}

// Batches of two micro-batches: those of batch t compute with version t - 1, and the first ones
// with version 0.
TEST(WeightStashing, TwoBufferedOfTheFirstOfTwoStagesByHand) {
  expect_by_hand({.weights = Weights::TwoBuffered, .stages = 2, .micro_batches = 2},
                 "F0 F1 B0 F2 B1 U F3 B2 F4 B3 U F5 B4 B5 U",
                 "0  0  0  0  0  - 0  0  1  0  - 1  1  1  -",
                 "1  1  1  1  1  2 2  2  2  1  2 2  2  1  2");
}

TEST(WeightStashing, TwoBufferedKeepsTwoVersions) {
  for (int p = 1; p <= 5; ++p)
    for (int stage = 0; stage < p; ++stage)
      for (const int m : {p, p + 1, 2 * p})
        for (const int updates : {1, 3}) {
          const WeightVersions::Options options{
              .weights = Weights::TwoBuffered, .stages = p, .micro_batches = m};
          EXPECT_EQ(expect_versions(options, two_bw(p, m, updates), stage, 3), 2)
              << "stage " << stage << " of " << p << ", " << m << " micro-batches an update";
        }
}

// Micro-batch 1's backward has other weights than its forward.
TEST(WeightStashing, NewestKeepsNothingByHand) {
  expect_by_hand({.weights = Weights::Newest, .stages = 2}, "F0 F1 B0 U F2 B1 U B2 U",
                 "0  0  0  - 1  1  - 2  -", "1  1  1  1 1  1  1 1  1");
}

TEST(WeightStashing, NewestKeepsOneVersionOnAllStages) {
  for (int p = 1; p <= 5; ++p)
    for (int stage = 0; stage < p; ++stage)
      EXPECT_EQ(expect_versions({.weights = Weights::Newest, .stages = p}, pipedream(p, 2 * p + 1),
                                stage, 2),
                1);
}

TEST(WeightStashing, SaysWhichVersionWasNotKept) {
  alone([](const Rank& rank) {
    Stage stage(rank, {.weights = Weights::VerticalSync, .stages = 2});
    run_list(stage, pipedream(2, 4), 1);
    EXPECT_EQ(message_of([&] { stage.versions.use_for_forward(1); }),
              "weights: version 0 is asked for, and the newest is 4: it was not kept");
  });
}

TEST(WeightVersionsGiven, BeginWithTheWeightsThatAreThere) {
  for (const Weights weights :
       {Weights::Newest, Weights::Stashed, Weights::VerticalSync, Weights::TwoBuffered})
    alone([&](const Rank& rank) {
      Stage stage(rank, {.weights = weights, .stages = 2, .micro_batches = 2});
      stage.versions.begin_run();
      for (const char* action : {"F0", "F1", "B0", "B1"})
        EXPECT_EQ(computes_with(stage, written::list(action)[0]), "version 0") << action;
      EXPECT_EQ(stage.versions.kept(), 1);
      EXPECT_EQ(stage.versions.newest(), 0);
      EXPECT_EQ(stage.copied_bytes(), 0);
    });
}

// With vertical sync over one stage micro-batch 1 computes with what micro-batch 0's update makes.
TEST(WeightVersionsGiven, SayWhichVersionIsNotThere) {
  alone([](const Rank& rank) {
    Stage stage(rank, {.weights = Weights::VerticalSync, .stages = 1});
    EXPECT_EQ(message_of([&] { stage.versions.use_for_forward(1); }),
              "weights: version 1 is asked for, and the newest is 0: it was not kept");
  });
}

}  // namespace
}  // namespace aisc
