// What passes between stages: of any shape, on communicators that are late, and by ranks of which
// one fails. The model is small and its stages differ in everything.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "05_pipeline/more/bidirectional.h"
#include "05_pipeline/pipelined.h"
#include "05_pipeline/schedules.h"
#include "common/nn/cross_entropy.h"
#include "common/nn/embedding.h"
#include "common/nn/linear.h"
#include "common/nn/parameter_store.h"
#include "tests/05_pipeline/whole/counted_comm.h"
#include "tests/05_pipeline/written.h"
#include "tests/support/delayed_comm.h"
#include "tests/support/drawn.h"
#include "tests/support/error_says.h"
#include "tests/support/late_comm.h"
#include "tests/support/same_run.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

constexpr int kLayers = 9;  // an embedding and products
constexpr std::int64_t kTokens = 3, kVocabulary = 11;

// Columns of what layer i makes: no two neighbours alike.
std::int64_t width_of(std::size_t i) {
  if (i + 1 == kLayers) return kVocabulary;
  return 2 * drawn("width of layer " + std::to_string(i), 1, 4) + static_cast<std::int64_t>(i % 2);
}

// Stages of layers that are not equally many.
LayerRange layers_of(int stage, int stages) {
  const auto begin = [&](int s) {
    return kLayers * static_cast<std::size_t>(s) / static_cast<std::size_t>(stages);
  };
  return {begin(stage), begin(stage + 1)};
}

std::unique_ptr<Layer> make_layer(const Rank& rank, std::size_t i) {
  if (i == 0)
    return std::make_unique<Embedding>(
        rank, whole_parameter("table", {kVocabulary, width_of(0)}, Init::normal(0.5), true),
        DType::F64);
  return std::make_unique<Linear>(rank, "layer" + std::to_string(i), width_of(i - 1), width_of(i),
                                  0.5);
}

// These stages of it on this rank.
Model make_model(const Rank& rank, const std::vector<int>& stages, int of) {
  Model model;
  for (const int stage : stages) {
    const LayerRange range = layers_of(stage, of);
    const std::size_t first = model.layers.size();
    for (std::size_t i = range.begin; i < range.end; ++i)
      model.layers.push_back(make_layer(rank, i));
    model.stages.push_back({first, model.layers.size()});
    if (stage == of - 1) model.loss = std::make_unique<CrossEntropy>(rank, kVocabulary);
  }
  return model;
}

ParameterStore make_store(const Rank& rank, const Model& model) {
  ParameterStore store(rank.device, make_units(model),
                       {.value_dtype = DType::F64, .grad_dtype = DType::F64});
  store.initialize(7);
  return store;
}

PipelineOptions options_of(int stages, Again again = Again::Never) {
  return {.input_shape =
              [stages](int stage, const Shape& tokens) {
                return Shape{tokens[0], tokens[1], width_of(layers_of(stage, stages).begin - 1)};
              },
          .dtype = DType::F64,
          .again = again};
}

// Micro-batches differ in their number of samples.
Batch batch_of(const Rank& rank, std::int64_t m) {
  const std::int64_t samples = 1 + m % 3;
  const auto ids = [&](const std::string& name) {
    return ids_tensor(random_ids(samples * kTokens, kVocabulary, name + std::to_string(m)),
                      rank.device)
        .reshaped({samples, kTokens});
  };
  return {ids("tokens"), ids("targets")};
}

ReadMicroBatch reader(const Rank& rank, int count) {
  return [&rank, count](std::int64_t m) {
    return MicroBatch{batch_of(rank, m),
                      {.micro_batch = static_cast<int>(m), .last_micro_batch = m + 1 == count}};
  };
}

void add_gradients(const Model& model, RunRecord& all) {
  for (const auto& layer : model.layers)
    for (const Parameter* p : layer->parameters()) all.gradients[p->name] = to_doubles(p->grad());
}

constexpr double kFactor = 0.25;

// `m` micro-batches accumulated on one rank.
RunRecord serial_steps(int m) {
  RunRecord result;
  launch({.ranks = 1}, [&](const Rank& rank) {
    const Model model = make_model(rank, {0}, 1);
    const ParameterStore store = make_store(rank, model);
    result.losses = {one_after_another(rank, model, m, reader(rank, m), kFactor, {})};
    add_gradients(model, result);
  });
  return result;
}

using Decorate = std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)>;

LaunchOptions on_threads(int ranks, const Decorate& decorate = {}) {
  return {.ranks = ranks,
          .backend = LaunchOptions::Backend::Threads,
          .timeout_seconds = 20,
          .device = {.poison = true},
          .bind = false,
          .internals = {.decorate = decorate}};
}

// Runs twice: the second run finds what the first has left.
RunRecord pipelined_run(const Schedule& schedule, const Decorate& decorate, Again again) {
  RunRecord result{.losses = {0}, .gradients = {}, .weights = {}};
  std::mutex mutex;
  launch(on_threads(schedule.ranks(), decorate), [&](const Rank& rank) {
    const std::size_t self = index(rank.world.rank());
    const Model model = make_model(rank, schedule.stage_of[self], schedule.stages());
    ParameterStore store = make_store(rank, model);
    PipelineRank pipeline(rank, rank.world, model, schedule, options_of(schedule.stages(), again));
    double loss = 0;
    for (int i = 0; i < 2; ++i) {
      store.clear_grads();
      loss =
          pipeline.run(schedule.micro_batches, reader(rank, schedule.micro_batches), kFactor, {});
    }
    const std::lock_guard lock(mutex);
    result.losses[0] += loss;
    add_gradients(model, result);
    EXPECT_EQ(loss == 0, !model.loss) << "rank " << self << ": losses are the last stage's";
  });
  return result;
}

// --- shapes and communicators ------------------------------------------------------------------

std::vector<Schedule> all_schedules(int p, int m) {
  std::vector<Schedule> all{naive(p, m), gpipe(p, m), one_f_one_b(p, m),
                            zb_h1(p, m), zb_h2(p, m), zb_v(p, m)};
  for (int v = 2; m % p == 0 && v * p <= kLayers; ++v) all.push_back(interleaved(p, v, m));
  if (m >= 2 * p) all.push_back(dual_pipe_v(p, m));
  return all;
}

struct Links {
  std::string name;
  Decorate decorate;
};
std::ostream& operator<<(std::ostream& out, const Links& links) { return out << links.name; }

class PipelineLinks : public ::testing::TestWithParam<Links> {};

// To the last bit: gradients are summed in the order of micro-batches, whatever the schedule.
TEST_P(PipelineLinks, OfUnevenStagesLeaveWhatOneRankLeaves) {
  for (int m = 1; m <= 9; ++m) {
    const RunRecord expected = serial_steps(m);
    for (const int p : {1, 2, 3, 4})
      for (const Schedule& s : all_schedules(p, m))
        for (const Again again : {Again::Never, Again::Early}) {
          const RunRecord found = pipelined_run(s, GetParam().decorate, again);
          EXPECT_TRUE(same_run(expected, found, 0))
              << s.name << " of " << p << " ranks, " << s.chunks() << " chunks, " << m
              << " micro-batches, again " << static_cast<int>(again);
        }
  }
}

INSTANTIATE_TEST_SUITE_P(Links, PipelineLinks,
                         ::testing::Values(Links{"Threads", {}}, Links{"Late", make_late_comm},
                                           Links{"Delayed",
                                                 [](std::unique_ptr<Communicator> world) {
                                                   return make_delayed_comm(std::move(world),
                                                                            test_seed());
                                                 }}),
                         [](const auto& links) { return links.param.name; });

// --- evaluation --------------------------------------------------------------------------------

void add_to_weights(const Model& model, double x) {
  for (const auto& layer : model.layers)
    for (Parameter* p : layer->parameters())
      for (double& w : View(p->value()).values<double>()) w += x;
}

// More windows than micro-batches, fewer, and none; before and after a run, of which PipeDream's
// leaves other weights.
TEST(PipelineEvaluate, GivesTheSumsOfLossesOfOneRank) {
  for (const Schedule& s :
       {one_f_one_b(3, 4), interleaved(2, 2, 4), zb_v(2, 4), zb_v(3, 4), pipedream(3, 4)})
    launch(on_threads(s.ranks()), [&](const Rank& rank) {
      const std::size_t self = index(rank.world.rank());
      const Model whole = make_model(rank, {0}, 1);
      const ParameterStore whole_store = make_store(rank, whole);
      const Model model = make_model(rank, s.stage_of[self], s.stages());
      const ParameterStore store = make_store(rank, model);
      PipelineRank pipeline(rank, rank.world, model, s, options_of(s.stages()));
      std::function<void()> update;
      if (pipeline.updates_on_its_way()) update = [&] { add_to_weights(model, 0.125); };
      for (const int count : {6, 0, 1}) {
        std::vector<Batch> windows;
        std::vector<double> expected;
        for (int m = 0; m < count; ++m) {
          windows.push_back(batch_of(rank, m));
          const double loss = evaluate(whole, windows.back().tokens, windows.back().targets);
          expected.push_back(model.loss ? loss : 0);
        }
        const std::int64_t saved = pipeline.most_saved_bytes();
        EXPECT_EQ(pipeline.evaluate(windows, {}), expected)
            << s.name << ", rank " << self << ", " << count << " windows";
        EXPECT_EQ(pipeline.most_saved_bytes(), saved) << "what nobody trains on is not kept";
        pipeline.run(4, reader(rank, 4), 1, {}, update);
        for (int i = 0; i < (update ? 4 : 0); ++i) add_to_weights(whole, 0.125);
      }
    });
}

// --- what does not fit, and what fails ---------------------------------------------------------

// A pipeline of `ranks` ranks for this schedule, each with `stages` stages; then `run`.
void start(int ranks, const Schedule& schedule, int stages, int micro_batches,
           const Decorate& decorate = {}, const std::function<void()>& update = {}) {
  launch(on_threads(ranks, decorate), [&](const Rank& rank) {
    std::vector<int> own;
    for (int c = 0; c < stages; ++c) own.push_back(c * ranks + rank.world.rank());
    const Model model = make_model(rank, own, ranks * stages);
    const ParameterStore store = make_store(rank, model);
    PipelineRank pipeline(rank, rank.world, model, schedule, options_of(ranks * stages));
    pipeline.run(micro_batches, reader(rank, micro_batches), 1, {}, update);
  });
}

TEST(PipelineRankErrors, NameWhatDoesNotFit) {
  start(3, gpipe(3, 4), 1, 4);
  EXPECT_TRUE(error_says([] { start(2, gpipe(3, 4), 1, 4); },
                         {"pipeline: gpipe is of 3 ranks, world has 2"}));
  EXPECT_TRUE(error_says([] { start(2, zb_v(2, 4), 1, 4); },
                         {"pipeline: the model has 1 stages on rank", "zb-v has 2"}));
  EXPECT_TRUE(error_says([] { start(2, gpipe(2, 4), 2, 4); },
                         {"pipeline: the model has 2 stages on rank", "gpipe has 1"}));
  EXPECT_TRUE(
      error_says([] { start(2, gpipe(2, 4), 1, 3); }, {"pipeline: 3 micro-batches, gpipe has 4"}));
  EXPECT_TRUE(
      error_says([] { start(1, interleaved(1, 2, 2), 2, 2, {}, [] {}); },
                 {"pipeline: interleaved has 2 chunks a rank, and updates on the way are of one"}));
}

// Every problem in one message, and not a message between ranks.
TEST(PipelineRankErrors, ListTheProblemsOfASchedule) {
  EXPECT_TRUE(error_says(
      [] {
        start(2, written::schedule(2, {"F0 F1 B0", "F0 B0 B1"}), 1, 2);
      },
      {"pipeline: written cannot be executed:", "\n  rank 0: B1 is missing",
       "\n  rank 1: F1 is missing"}));
}

TEST(PipelineRankErrors, RefuseASchedulesCircleBeforeAnythingIsSent) {
  CommCounts counts;
  const Schedule circle = written::schedule(2, {"F0 B0 F1 B1", "F1 B1 F0 B0"});
  EXPECT_TRUE(error_says([&] { start(2, circle, 1, 2, counted(counts)); },
                         {"pipeline: written cannot be executed:",
                          "ranks 0 -> 1 -> 0 wait for each other: rank 0 cannot begin B0 before "
                          "rank 1 has done B0; rank 1 cannot begin F1 before rank 0 has done F1"}));
  for (const int rank : {0, 1}) EXPECT_EQ(counts.of("world", rank).sent().messages, 0);
  EXPECT_FALSE(counts.has("pp forward"));
}

// Fails in one action of one micro-batch.
class Failing final : public Layer {
 public:
  Failing(const Rank& rank, std::unique_ptr<Layer> inner, ActionKind where, int micro_batch)
      : Layer(rank, inner->name()),
        inner_(std::move(inner)),
        where_(where),
        micro_batch_(micro_batch) {}

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override {
    fail_in(ActionKind::Forward, pass);
    return inner_->forward(std::move(x), saved, pass);
  }
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override {
    fail_in(ActionKind::Backward, pass);
    if (pass.deferred)
      pass.deferred->push([this, m = pass.micro_batch] {
        fail_in(ActionKind::WeightGradient, {.micro_batch = m});
      });
    return inner_->backward(std::move(dy), saved, pass);
  }
  std::vector<Parameter*> parameters() override { return inner_->parameters(); }

 private:
  void fail_in(ActionKind here, const Pass& pass) const {
    if (here == where_ && pass.micro_batch == micro_batch_)
      fail(to_string(Action{here, micro_batch_}) + " has gone wrong");
  }
  const std::unique_ptr<Layer> inner_;
  const ActionKind where_;
  const int micro_batch_;
};

void run_with_failure(const Schedule& s, int failing, ActionKind where, int micro_batch) {
  launch(on_threads(s.ranks()), [&](const Rank& rank) {
    Model model = make_model(rank, s.stage_of[index(rank.world.rank())], s.stages());
    if (rank.world.rank() == failing)
      model.layers.back() =
          std::make_unique<Failing>(rank, std::move(model.layers.back()), where, micro_batch);
    const ParameterStore store = make_store(rank, model);
    PipelineRank pipeline(rank, rank.world, model, s, options_of(s.stages()));
    pipeline.run(s.micro_batches, reader(rank, s.micro_batches), 1, {});
  });
}

// The others wait for it: their waits end, too. A rank that did not would end the whole program.
TEST(PipelineRankErrors, OfOneRankEndAllAndNameIt) {
  using enum ActionKind;
  for (const Schedule& s : {gpipe(3, 5), one_f_one_b(3, 5), zb_h2(3, 5), zb_v(3, 5)})
    for (const int failing : {0, 1, 2})
      for (const ActionKind where : {Forward, Backward, WeightGradient})
        for (const int micro_batch : {0, 2, 4}) {
          if (where == WeightGradient && !s.splits_backward) continue;
          EXPECT_TRUE(error_says([&] { run_with_failure(s, failing, where, micro_batch); },
                                 {"rank " + std::to_string(failing) + ": " +
                                  to_string(Action{where, micro_batch}) + " has gone wrong"}))
              << s.name;
        }
}

// Ranks that disagree about a shape: the activations of rank 0 are wider than rank 1 expects.
TEST(PipelineRankErrors, OfOtherShapesNameTheMessage) {
  const auto call = [] {
    launch(on_threads(2), [](const Rank& rank) {
      const Model model = make_model(rank, {rank.world.rank()}, 2);
      const ParameterStore store = make_store(rank, model);
      PipelineOptions options = options_of(2);
      options.input_shape = [](int, const Shape& tokens) { return tokens; };
      PipelineRank pipeline(rank, rank.world, model, gpipe(2, 2), std::move(options));
      pipeline.run(2, reader(rank, 2), 1, {});
    });
  };
  const std::int64_t width = options_of(2).input_shape(1, {1, kTokens})[2];
  EXPECT_TRUE(error_says(call, {"pp forward: rank 1 called recv", "where rank 0 called send",
                                std::to_string(kTokens), std::to_string(kTokens * width)}));
}

}  // namespace
}  // namespace aisc
