#include "13_vision/digit_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "05_pipeline/pipelined.h"
#include "13_vision/classifier_weights.h"
#include "13_vision/expert_head.h"
#include "common/comm/host_values.h"
#include "common/comm/mesh.h"
#include "common/core/error.h"
#include "common/core/range.h"
#include "common/nn/driver.h"
#include "common/optim/optimizer.h"
#include "common/optim/schedule.h"

namespace aisc {
namespace {

constexpr std::int64_t kAtOnce = 100;  // images of an evaluation
constexpr std::int64_t kTold = 10;     // steps, besides the last

bool is_told(std::int64_t step, std::int64_t steps) {
  return step % std::max<std::int64_t>(1, steps / kTold) == 0 || step + 1 == steps;
}

Batch batch_of(ImageBatch images) {
  const auto count = static_cast<double>(images.labels.count());
  return {.tokens = std::move(images.images), .targets = std::move(images.labels), .terms = count};
}

// What takes the place of the loss where a model is tested: how many logits are right.
class RightAnswers final : public Loss {
 public:
  double forward(Tensor x, const Tensor& targets, Saved& /*saved*/,
                 const Pass& /*pass*/) const override {
    return static_cast<double>(count_right(x, targets));
  }
  Tensor backward(Saved& /*saved*/, double /*factor*/) const override {
    fail("right answers have no gradient");
  }
};

// This rank's part of all test images, as batches: as many on each rank, the last ones perhaps
// without an image, since experts and weights may come from all ranks.
std::vector<Batch> windows_of(const ImageSet& test, Communicator& ranks, DType dtype,
                              Device& device) {
  const Range mine = share_of(test.count(), ranks.rank(), ranks.size());
  const std::int64_t most = (test.count() + ranks.size() - 1) / ranks.size();
  std::vector<Batch> windows;
  for (std::int64_t from = 0; from < most; from += kAtOnce) {
    std::vector<std::int64_t> which;
    for (std::int64_t i = mine.begin + from; i < std::min(mine.begin + from + kAtOnce, mine.end);
         ++i)
      which.push_back(i);
    windows.push_back(batch_of(test.batch(which, dtype, device)));
  }
  return windows;
}

// A classifier, or a rank's stage of it, with what moves its weights.
class Learner {
 public:
  Learner(const Rank& rank, const ClassifierConfig& config, const DigitSteps& steps)
      : rank_(rank),
        steps_(steps),
        mesh_(rank.world, {.dp = rank.world.size() / steps.stages, .pp = steps.stages}),
        layers_(layer_sizes(config)),
        model_(make_digit_classifier(rank, config, mesh_.dp())),
        rate_{.peak = steps.learning_rate,
              .warmup_steps = warmup_of(steps.steps),
              .total_steps = steps.steps} {
    if (steps.stages > 1) {
      cut_ = best_cut(layers_, steps.stages);
      model_ = stage_of(std::move(model_), cut_[index(mesh_.place().pp)]);
    }
    weights_.emplace(rank.device, model_, steps.seed);
    optimizer_.emplace(weights_->slices(), AdamW::Options{.beta2 = 0.99, .weight_decay = 0.01});
    // A router's loss is a sum over an image's places: its mean, like the images'.
    const Shape& last = layers_[layers_.size() - 2].input;
    extra_.factor = factor() / static_cast<double>(last[1] * last[2]);
    if (steps.stages > 1)
      pipeline_.emplace(rank, mesh_.pp(), model_,
                        find_schedule({.schedule = steps.schedule}, steps.stages,
                                      static_cast<int>(steps.micro_batches)),
                        PipelineOptions{.input_shape = [this](int stage, const Shape& images) {
                          return stage_input(layers_, cut_[index(stage)], images[0]);
                        }});
  }

  Communicator& data_ranks() { return mesh_.dp(); }

  std::int64_t parameters() { return weights_->parameters(rank_.world, data_ranks()); }

  // Returns the sum of the losses of this rank's images, where the last stage is.
  double step(std::int64_t number, const ReadImages& images) {
    weights_->clear_grads();
    extra_.sum = 0;
    const ReadMicroBatch read = [&](std::int64_t m) {
      return micro_batch_of(batch_of(images(m)), {.step = static_cast<std::uint64_t>(number),
                                                  .micro_batch = static_cast<int>(m),
                                                  .last_micro_batch = m + 1 == steps_.micro_batches,
                                                  .extra = &extra_});
    };
    const double loss =
        pipeline_ ? pipeline_->run(steps_.micro_batches, read, factor(), {})
                  : one_after_another(rank_, model_, steps_.micro_batches, read, factor(), {});
    weights_->sum_grads(data_ranks());  // comm: every gradient, once a step
    optimizer_->step({.learning_rate = rate_.at(number)});
    return loss;
  }

  std::int64_t right(const ImageSet& test) {
    const std::vector<Batch> windows = windows_of(test, data_ranks(), DType::F32, rank_.device);
    if (model_.loss) model_.loss = std::make_unique<RightAnswers>();
    double right = 0;
    if (pipeline_) {
      for (const double some : pipeline_->evaluate(windows, {})) right += some;
    } else {
      for (const Batch& batch : windows)
        right += evaluate(model_, batch.tokens, batch.targets, {}, {.training = false});
    }
    return sum_of_all(rank_.world, static_cast<std::int64_t>(right));  // comm: 8 bytes a rank
  }

 private:
  double factor() const { return 1 / static_cast<double>(steps_.batch); }

  const Rank rank_;
  const DigitSteps steps_;
  Mesh mesh_;
  const std::vector<LayerSize> layers_;
  Model model_;
  std::vector<LayerRange> cut_;  // of a pipeline: the layers of all stages
  const RateSchedule rate_;
  std::optional<ClassifierWeights> weights_;
  std::optional<AdamW> optimizer_;
  ExtraLoss extra_;
  std::optional<PipelineRank> pipeline_;
};

void require_steps(const DigitSteps& steps, int ranks) {
  if (steps.stages < 1 || ranks % steps.stages != 0)
    fail(fmt::format("digits: {} ranks in {} stages, expected a multiple", ranks, steps.stages));
  if (steps.micro_batches < 1)
    fail(fmt::format("digits: {} micro-batches, expected 1 or more", steps.micro_batches));
  const std::int64_t parts = ranks / steps.stages * steps.micro_batches;
  if (steps.batch < parts)
    fail(
        fmt::format("digits: a batch of {} for {} ranks with {} micro-batches each: expected {} "
                    "or more, an image each",
                    steps.batch, ranks / steps.stages, steps.micro_batches, parts));
}

}  // namespace

std::int64_t warmup_of(std::int64_t steps) { return std::max<std::int64_t>(1, steps / 20); }

DigitsLearnt train_digits(const Rank& rank, const ClassifierConfig& model, const DigitSteps& steps,
                          const DigitData& data, const TellStep& tell) {
  require_steps(steps, rank.world.size());
  Learner learner(rank, model, steps);
  Communicator& ranks = learner.data_ranks();
  for (std::int64_t step = 0; step < steps.steps; ++step) {
    double loss = learner.step(step, [&](std::int64_t m) {
      // Of each micro-batch every rank has a part: its statistics are then those of one rank.
      const Range all = share_of(steps.batch, m, steps.micro_batches);
      const Range part = share_of(all, ranks.rank(), ranks.size());
      return data.train.batch(
          drawn_places(steps.seed, step, part.begin, part.count(), data.train.count()), DType::F32,
          rank.device);
    });
    if (!tell || !is_told(step, steps.steps)) continue;
    loss = sum_of_all(rank.world, loss);  // comm: 8 bytes a rank
    tell(step, loss / static_cast<double>(steps.batch));
  }
  // What the trace has more of experts behind the test than before it is the test's.
  const auto load = [&] {
    return model.experts > 0 ? expert_load(rank.trace, model.experts, rank.world)
                             : std::vector<std::int64_t>();
  };
  const bool records = rank.trace.is_recording();
  if (model.experts > 0) rank.trace.record(true);
  const std::vector<std::int64_t> before = load();
  const std::int64_t right = learner.right(data.test);
  DigitsLearnt learnt{.right = static_cast<double>(right) / static_cast<double>(data.test.count()),
                      .load = load(),
                      .parameters = learner.parameters()};
  for (std::size_t e = 0; e < before.size(); ++e) learnt.load[e] -= before[e];
  if (model.experts > 0) rank.trace.record(records);
  return learnt;
}

DigitsLearnt train_digits(const Rank& rank, Engine& engine, const EngineSettings& settings,
                          std::uint64_t seed, const DigitData& data, const TellStep& tell) {
  const std::int64_t parts = rank.world.size() * settings.micro_batches;
  if (settings.ranks != rank.world.size() || settings.batch % parts != 0)
    fail(fmt::format(
        "digits: a batch of {} on {} ranks with {} micro-batches each: expected {} "
        "ranks, and a multiple of {}",
        settings.batch, settings.ranks, settings.micro_batches, rank.world.size(), parts));
  const std::int64_t part = settings.batch / settings.ranks / settings.micro_batches;
  const DType dtype = engine.parameters().value_dtype();
  for (std::int64_t step = 0; step < settings.steps; ++step) {
    double loss = engine_step(engine, settings.micro_batches, [&](std::int64_t m) {
      const std::int64_t first = (m * settings.ranks + rank.world.rank()) * part;
      return data.train.batch(drawn_places(seed, step, first, part, data.train.count()), dtype,
                              rank.device);
    });
    if (!tell || !is_told(step, settings.steps)) continue;
    loss = sum_of_all(rank.world, loss);  // comm: 8 bytes a rank
    tell(step, loss / settings.ranks);
  }
  std::int64_t right = 0;
  for (const Batch& batch : windows_of(data.test, rank.world, dtype, rank.device))
    right += count_right(engine.predict(batch.tokens), batch.targets);
  right = sum_of_all(rank.world, right);  // comm: 8 bytes a rank
  return {.right = static_cast<double>(right) / static_cast<double>(data.test.count()),
          .parameters = engine.parameters().parameter_count()};
}

}  // namespace aisc
