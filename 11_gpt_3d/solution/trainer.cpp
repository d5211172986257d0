#include "11_gpt_3d/trainer.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "common/core/error.h"
#include "common/optim/clip.h"

namespace aisc {
namespace {

const TrainConfig& validated(const TrainConfig& config) {
  config.validate();
  return config;
}

std::string in_words(double x) { return std::isnan(x) ? "NaN" : fmt::format("{}", x); }

// Steps are counted from 1 where a person reads them.
void require_finite(std::int64_t step, const StepReport& report) {
  if (std::isfinite(report.loss) && std::isfinite(report.gradient_norm)) return;
  fail(fmt::format(
      "step {}: the loss is {} and the norm of the gradients {}. The usual causes: a learning rate "
      "that is too high (it is {:.3g} in this step; try a third of it, or a longer warm-up), no "
      "clipping (--clip 1), or too short a precision (try --precision f32)",
      step + 1, in_words(report.loss), in_words(report.gradient_norm), report.learning_rate));
}

}  // namespace

void TrainConfig::validate() const {
  model.validate();
  const auto positive = [](const char* what, std::int64_t value) {
    if (value < 1) fail(fmt::format("{} is {}, expected 1 or more", what, value));
  };
  positive("batch", batch);
  positive("micro-batches", micro_batches);
  positive("steps", steps);
  if (batch % micro_batches != 0)
    fail(fmt::format("batch {} is not a multiple of micro-batches {}", batch, micro_batches));
  if (warmup_steps < 0) fail(fmt::format("warm-up is {} steps, expected 0 or more", warmup_steps));
  if (!(learning_rate > 0) || !std::isfinite(learning_rate))
    fail(fmt::format("learning rate is {}, expected more than 0", learning_rate));
  if (!(min_learning_rate >= 0 && min_learning_rate <= learning_rate))
    fail(fmt::format("minimum learning rate is {}, expected between 0 and the learning rate {}",
                     min_learning_rate, learning_rate));
  if (!(clip >= 0)) fail(fmt::format("clip is {}, expected 0 (none) or more", clip));
  if (!(weight_decay >= 0)) fail(fmt::format("weight decay is {}, expected >= 0", weight_decay));
  if (gradient_dtype != model.dtype && gradient_dtype != DType::F32)
    fail(fmt::format("gradients in {} beside weights in {}: expected {} or F32",
                     name_of(gradient_dtype), name_of(model.dtype), name_of(model.dtype)));
}

Trainer::Trainer(const Rank& rank, const TrainConfig& config)
    : rank_(rank),
      config_(validated(config)),
      model_(rank, config.model),
      store_(rank.device, model_.units(),
             {.value_dtype = config.model.dtype, .grad_dtype = config.gradient_dtype}),
      optimizer_(
          (store_.initialize(config.seed), slices_of(store_.parameters())),
          {.beta1 = config.beta1, .beta2 = config.beta2, .weight_decay = config.weight_decay}),
      schedule_{.peak = config.learning_rate,
                .floor = config.min_learning_rate,
                .warmup_steps = config.warmup_steps,
                .total_steps = config.steps} {}

void Trainer::take_weights() {
  for (const Optimizer::State& state : optimizer_.state())
    for (const Parameter* p : store_.parameters())
      if (state.name == p->name + "/master")
        ops::cast(state.value, p->value.reshaped({p->value.count()}));
}

void Trainer::resume(std::int64_t steps, std::int64_t samples) {
  optimizer_.resume(steps);
  samples_ = samples;
}

StepReport Trainer::step(const BatchSampler& data) {
  const std::int64_t step = steps_taken(), part = config_.batch / config_.micro_batches;
  const auto tokens = static_cast<double>(config_.batch * config_.model.context);
  StepReport report{.loss = 0, .learning_rate = schedule_.at(step), .gradient_norm = 0};
  store_.clear_grads();
  for (std::int64_t m = 0; m < config_.micro_batches; ++m) {
    const Pass pass{.step = static_cast<std::uint64_t>(step), .first_sample = m * part};
    const auto span = rank_.trace.span("other", fmt::format("micro-batch {}", m));
    const Batch batch = [&] {
      const auto data_span = rank_.trace.span("data");
      return data.batch(rank_.device, samples_ + m * part, part);
    }();
    report.loss +=
        forward_backward(model_, batch.tokens, batch.targets, pass, 1.0 / tokens) / tokens;
  }
  store_.complete_grads();
  {
    const auto span = rank_.trace.span("clip");
    const ConstView grads = store_.grads();
    report.gradient_norm = global_norm({&grads, 1});
  }
  require_finite(step, report);
  const auto span = rank_.trace.span("optimizer");
  optimizer_.step({.learning_rate = report.learning_rate,
                   .gradient_scale = clip_factor(report.gradient_norm, config_.clip)});
  samples_ += config_.batch;
  return report;
}

double Trainer::evaluate(std::span<const Batch> windows) const {
  const auto span = rank_.trace.span("evaluation");
  double loss = 0;
  std::int64_t tokens = 0;
  for (const Batch& batch : windows) {
    loss += aisc::evaluate(model_, batch.tokens, batch.targets);
    tokens += batch.tokens.count();
  }
  if (tokens == 0) fail("evaluate: no windows to evaluate on");
  return loss / static_cast<double>(tokens);
}

double Trainer::flops_per_step() const {
  return config_.model.flops_per_token(config_.model.context) *
         static_cast<double>(config_.batch * config_.model.context);
}

}  // namespace aisc
