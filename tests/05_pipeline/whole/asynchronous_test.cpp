// Pipelines that update while micro-batches are under way, against serial trainings whose gradients
// are late by the papers' formulas: gradients and weights of every update.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "05_pipeline/pipeline_rank.h"
#include "05_pipeline/schedules.h"
#include "common/comm/launch.h"
#include "common/nn/parameter_store.h"
#include "common/optim/optimizer.h"
#include "tests/05_pipeline/whole/delayed_oracle.h"
#include "tests/support/late_comm.h"
#include "tests/support/numbers.h"
#include "tests/support/same_run.h"

namespace aisc {
namespace {

using delayed::History;
using delayed::kRate;

// What is trained, and how.
struct Training {
  int stages = 1;
  int micro_batches = 1;  // of an update
  int updates = 1;        // of a run
  int runs = 2;
  Weights weights = Weights::Stashed;

  int of_run() const { return micro_batches * updates; }
  Schedule schedule() const {
    return weights == Weights::TwoBuffered ? two_bw(stages, micro_batches, updates)
                                           : pipedream(stages, updates);
  }
};

// ---- what should come out -----------------------------------------------------------------------

// PipeDream: the version that stage s of p has in the forward of micro-batch k of a run that begins
// with version `first`. Each micro-batch is an update of its own.
int version_of(const Training& t, int stage, int k, int first) {
  const int missed = t.weights == Weights::VerticalSync ? t.stages - 1 : t.stages - 1 - stage;
  return first + std::max(0, k - missed);
}

History pipedream_oracle(const Training& t) {
  History all;
  for (int run = 0; run < t.runs; ++run) {
    const int first = run * t.updates;
    for (int k = 0; k < t.updates; ++k) {
      const delayed::Weights forward =
          all.mixed(t.stages, [&](int stage) { return version_of(t, stage, k, first); });
      const delayed::Weights& backward =
          t.weights == Weights::Newest ? all.versions.back() : forward;
      delayed::Gradient g = delayed::gradient(first + k, forward, backward);
      all.losses.push_back(g.loss);
      all.update(std::move(g.of));
    }
  }
  return all;
}

// PipeDream-2BW: W(t+1) = W(t) - lr grad f(W(t-1)), f the mean over the micro-batches of batch t,
// whatever the number of stages.
History delay_of_one(const Training& training) {
  History all;
  const int m = training.micro_batches;
  for (int t = 0; t < training.runs * training.updates; ++t) {
    const delayed::Weights before = all.versions[index(std::max(0, t - 1))];
    delayed::Weights mean = sum(before, -1, before);
    for (int k = t * m; k < (t + 1) * m; ++k) {
      const delayed::Gradient g = delayed::gradient(k, before);
      all.losses.push_back(g.loss);
      mean = sum(mean, 1.0 / m, g.of);
    }
    all.update(std::move(mean));
  }
  return all;
}

// Versions of its weights that a stage has at most: in PipeDream one for itself and one for each
// stage behind it; less where a run has too few micro-batches.
int most_versions(const Training& t, int stage) {
  const int behind = t.stages - 1 - stage, m = t.updates;
  if (t.weights == Weights::Newest) return 1;
  if (t.weights == Weights::TwoBuffered) return 2;
  if (t.weights == Weights::VerticalSync) return std::min(m, t.stages);
  return 1 + std::min({behind, std::max(0, m - 1 - behind) + 1, m - 1});
}

struct How {
  LaunchOptions options = {.device = {.poison = true}, .bind = false};
  Again again = Again::Never;
};

// One rank's stage, and its run against the oracle.
class StageRun {
 public:
  StageRun(const Rank& rank, const Training& training, const How& how, const History& oracle)
      : rank_(rank),
        training_(training),
        oracle_(oracle),
        stage_(rank.world.rank()),
        first_linear_(delayed::linears_of(stage_, training.stages).begin),
        model_(delayed::make_stage(rank, stage_, training.stages)),
        store_(rank.device, make_units(model_),
               {.value_dtype = DType::F64, .grad_dtype = DType::F64}),
        sgd_(slices_of(store_.parameters()), {}),
        pipeline_(
            rank, rank.world, model_, training.schedule(),
            {.input_shape =
                 [p = training.stages](int stage, const Shape& tokens) {
                   return Shape{tokens[0], delayed::kWidths[delayed::linears_of(stage, p).begin]};
                 },
             .dtype = DType::F64,
             .again = how.again,
             .weights = training.weights}) {
    store_.initialize(delayed::kSeed);
    store_.clear_grads();
  }

  void run() {
    rank_.device.reset_peaks();
    const std::int64_t before = parameters().live_bytes;
    std::int64_t version_bytes = 0;
    for (const Parameter* p : store_.parameters()) version_bytes += 8 * p->shape.count();
    for (int r = 0; r < training_.runs; ++r) run_once(r);
    const int most = most_versions(training_, stage_);
    EXPECT_EQ(pipeline_.most_versions(), most) << where() << "versions of the weights";
    // With vertical sync the last update keeps one more for micro-batches that might come.
    const int peak = training_.weights == Weights::VerticalSync
                         ? std::min(training_.updates + 1, training_.stages)
                         : most;
    EXPECT_EQ(parameters().peak_bytes - before, (peak - 1) * version_bytes)
        << where() << "bytes of copies at most, " << version_bytes << " each";
  }

 private:
  Usage parameters() const { return rank_.device.ledger()[Purpose::Parameters]; }
  std::string where() const {
    return fmt::format("{} stages, {} updates a run, weights {}, stage {}: ", training_.stages,
                       training_.updates, static_cast<int>(training_.weights), stage_);
  }

  void run_once(int r) {
    const int count = training_.of_run();
    const ReadMicroBatch read = [&](std::int64_t k) {
      const int of_all = r * count + static_cast<int>(k);
      return MicroBatch{
          .batch = {delayed::input(of_all, rank_.device), delayed::target(of_all, rank_.device)},
          .pass = {}};
    };
    const double loss =
        pipeline_.run(count, read, 1.0 / training_.micro_batches, {}, [&] { update(); });
    double expected = 0;
    for (int k = r * count; k < (r + 1) * count; ++k) expected += oracle_.losses[index(k)];
    EXPECT_NEAR(loss, model_.loss ? expected : 0, kSameRunF64) << where() << "losses of run " << r;
  }

  void update() {
    compare("gradients", oracle_.gradients.at(updates_), &Parameter::grad);
    sgd_.step({.learning_rate = kRate});
    compare("weights", oracle_.versions.at(++updates_), &Parameter::value);
    store_.clear_grads();
  }
  void compare(const std::string& what, const delayed::Weights& expected,
               const View& (Parameter::*found)() const) const {
    const std::vector<Parameter*>& all = store_.parameters();  // weight and bias of each linear
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto& arrays = i % 2 == 0 ? expected.matrices : expected.biases;
      EXPECT_TRUE(
          numbers_are(fmt::format("{}update {}: {} of {}", where(), updates_, what, all[i]->name),
                      (all[i]->*found)(), arrays[first_linear_ + i / 2].values, {}, kSameRunF64));
    }
  }

  const Rank rank_;
  const Training& training_;
  const History& oracle_;
  const int stage_;
  const std::size_t first_linear_;
  Model model_;
  ParameterStore store_;
  Sgd sgd_;
  PipelineRank pipeline_;
  std::size_t updates_ = 0;
};

void expect_trains(const Training& training, const History& oracle, const How& how = {}) {
  LaunchOptions options = how.options;
  options.ranks = training.stages;
  launch(options, [&](const Rank& rank) { StageRun(rank, training, how, oracle).run(); });
}

How late() {
  How how;
  how.options.internals.decorate = make_late_comm;
  return how;
}
How in_virtual_time() {
  How how;
  how.options.network = Network{.link = {1e-5, 1e-9}};
  return how;
}

// ---- PipeDream ----------------------------------------------------------------------------------

class PipeDream : public ::testing::TestWithParam<int> {};  // stages
INSTANTIATE_TEST_SUITE_P(Stages, PipeDream, ::testing::Values(1, 2, 3, 4));

TEST_P(PipeDream, WithStashingHasEachStagesOwnDelay) {
  for (int m = 1; m <= 9; ++m) {
    const Training t{.stages = GetParam(), .updates = m};
    expect_trains(t, pipedream_oracle(t));
    for (int stage = 0; stage < t.stages && m >= 2 * t.stages - 1; ++stage)
      EXPECT_EQ(most_versions(t, stage), t.stages - stage) << "which the run was compared with";
  }
}

TEST_P(PipeDream, WithVerticalSyncHasOneDelayOnAllStages) {
  for (int m = 1; m <= 9; ++m) {
    const Training t{.stages = GetParam(), .updates = m, .weights = Weights::VerticalSync};
    expect_trains(t, pipedream_oracle(t));
  }
}

TEST_P(PipeDream, ComputesAgainWithTheWeightsOfItsForward) {
  for (const Again again : {Again::OnArrival, Again::Early})
    for (const Weights weights : {Weights::Stashed, Weights::VerticalSync}) {
      const Training t{.stages = GetParam(), .updates = 7, .weights = weights};
      expect_trains(t, pipedream_oracle(t), {.again = again});
    }
}

TEST_P(PipeDream, IsTheSameWhenMessagesAreLateOrTakeTime) {
  for (const Weights weights : {Weights::Stashed, Weights::VerticalSync}) {
    const Training t{.stages = GetParam(), .updates = 6, .weights = weights};
    const History oracle = pipedream_oracle(t);
    expect_trains(t, oracle, late());
    expect_trains(t, oracle, in_virtual_time());
  }
}

// The oracle with other weights in backward than in forward: that is no gradient.
TEST_P(PipeDream, WithTheNewestWeightsGoesBackThroughOthers) {
  const Training t{.stages = GetParam(), .updates = 9, .weights = Weights::Newest};
  expect_trains(t, pipedream_oracle(t));
}

// If the trainings were the same, none of the comparisons above would tell them apart.
TEST(PipeDreamOracle, DelaysMakeADifference) {
  for (const int p : {2, 3, 4}) {
    std::vector<History> all{pipedream_oracle({.updates = 9})};  // the serial one
    for (const Weights weights : {Weights::Stashed, Weights::VerticalSync, Weights::Newest})
      all.push_back(pipedream_oracle({.stages = p, .updates = 9, .weights = weights}));
    for (std::size_t i = 0; i < all.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        EXPECT_GT(distance(all[i], all[j]), 1e-3) << p << " stages, " << i << " and " << j;
  }
}

// ---- by hand: the newest weights ----------------------------------------------------------------

// y = w x
class Times final : public Layer {
 public:
  Times(const Rank& rank, const std::string& name, double weight)
      : Layer(rank, name), w_(whole_parameter(name, {1}, Init::constant(weight), true)) {}
  Tensor forward(Tensor x, Saved& saved, const Pass& /*pass*/) const override {
    Tensor y = x.clone();
    y.values<double>()[0] *= w_.value().values<double>()[0];
    saved.push(std::move(x));
    return y;
  }
  Tensor backward(Tensor dy, Saved& saved, const Pass& /*pass*/) override {
    const Tensor x = saved.pop();
    double& dw = w_.grad().values<double>()[0];
    const bool adds = w_.next_grad() == ops::Into::Accumulate;
    dw = (adds ? dw : 0) + dy.values<double>()[0] * x.values<double>()[0];
    Tensor dx = dy.clone();
    dx.values<double>()[0] *= w_.value().values<double>()[0];
    return dx;
  }
  std::vector<Parameter*> parameters() override { return {&w_}; }

 private:
  Parameter w_;
};

// f(a, b, c) = (c b a)^2 / 2 in two micro-batches, with a and b on stage 0, c on stage 1, learning
// rate 1/8. Returns the gradients of a and b in both updates.
std::vector<double> gradients_of_stage_0(Weights weights) {
  std::vector<double> found;
  launch({.ranks = 2, .bind = false}, [&](const Rank& rank) {
    const bool is_first = rank.world.rank() == 0;
    Model model;
    model.layers.push_back(std::make_unique<Times>(rank, is_first ? "a" : "c", 1));
    if (is_first) model.layers.push_back(std::make_unique<Times>(rank, "b", 2));
    if (!is_first) model.loss = std::make_unique<delayed::Squares>();
    model.stages = {model.all_layers()};
    ParameterStore store(rank.device, make_units(model),
                         {.value_dtype = DType::F64, .grad_dtype = DType::F64});
    store.initialize(1);
    store.clear_grads();
    Sgd sgd(slices_of(store.parameters()), {});
    PipelineRank pipeline(rank, rank.world, model, pipedream(2, 2),
                          {.input_shape = [](int, const Shape& x) { return x; },
                           .dtype = DType::F64,
                           .weights = weights});
    const ReadMicroBatch read = [&](std::int64_t) {
      return MicroBatch{{from_doubles({1}, {1}, DType::F64, rank.device),
                         from_doubles({0}, {1}, DType::F64, rank.device)},
                        {}};
    };
    pipeline.run(2, read, 1, {}, [&] {
      if (is_first)
        for (const Parameter* p : store.parameters()) found.push_back(to_doubles(p->grad())[0]);
      sgd.step({.learning_rate = 1. / 8});
      store.clear_grads();
    });
  });
  return found;
}

// Micro-batch 0: y = 2, dc = 4, da = 4 and db = 2; so a, b, c are 1, 2, 1 and then 1/2, 7/4, 1/2.
// Micro-batch 1 enters stage 0 before that, and stage 1 after it: y = 1/2 * 2 * 1 = 1, and the
// gradient that comes back to stage 0 is 1 * 1/2. Through b of its forward, 2, it makes da = 1;
// through the newest b, 7/4, it makes 7/8. With vertical sync c is 1 as well: y = 2, da = 4.
TEST(NewestWeights, HaveTheGradientOfNoFunctionByHand) {
  EXPECT_EQ(gradients_of_stage_0(Weights::Stashed), (std::vector<double>{4, 2, 1, 0.5}));
  EXPECT_EQ(gradients_of_stage_0(Weights::VerticalSync), (std::vector<double>{4, 2, 4, 2}));
  const std::vector<double> newest = gradients_of_stage_0(Weights::Newest);
  EXPECT_EQ(newest, (std::vector<double>{4, 2, 0.875, 0.5}));
  // df/da = (c b)^2 a of any versions of the two stages.
  for (const int u : {0, 1})
    for (const int v : {0, 1}) {
      const double a = u == 0 ? 1 : 0.5, b = u == 0 ? 2 : 1.75, c = v == 0 ? 1 : 0.5;
      EXPECT_NE(newest[2], c * b * c * b * a) << "version " << u << " and version " << v;
    }
}

// ---- PipeDream-2BW ------------------------------------------------------------------------------

class TwoBuffered : public ::testing::TestWithParam<int> {};  // stages
INSTANTIATE_TEST_SUITE_P(Stages, TwoBuffered, ::testing::Values(1, 2, 3, 4));

TEST_P(TwoBuffered, IsADelayOfOneOverSeveralRuns) {
  const int p = GetParam();
  for (const int m : {p, p + 1, 2 * p + 1}) {
    const Training t{.stages = p, .micro_batches = m, .runs = 5, .weights = Weights::TwoBuffered};
    expect_trains(t, delay_of_one(t));
  }
}

TEST_P(TwoBuffered, IsADelayOfOneInOneRun) {
  const int p = GetParam();
  for (const int m : {p, p + 2}) {
    const Training t{
        .stages = p, .micro_batches = m, .updates = 4, .weights = Weights::TwoBuffered};
    const History oracle = delay_of_one(t);
    expect_trains(t, oracle);
    expect_trains(t, oracle, late());
    expect_trains(t, oracle, {.again = Again::Early});
  }
}

TEST(TwoBufferedOracle, ADelayMakesADifference) {
  const Training t{.micro_batches = 3, .updates = 5};
  History serial;
  for (int u = 0; u < 10; ++u) {
    const delayed::Weights now = serial.versions.back();
    delayed::Weights mean = sum(now, -1, now);
    for (int k = 3 * u; k < 3 * u + 3; ++k) mean = sum(mean, 1. / 3, delayed::gradient(k, now).of);
    serial.update(std::move(mean));
  }
  EXPECT_GT(distance(delay_of_one(t), serial), 1e-3);
}

}  // namespace
}  // namespace aisc
