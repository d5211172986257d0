#include "common/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/core/error.h"
#include "common/optim/clip.h"

namespace aisc {
namespace {

const TrainConfig& validated(const TrainConfig& config, int ranks) {
  config.validate(ranks);
  return config;
}

// Draws the parameters, of which the optimizer then takes its master copies.
std::vector<OptimizerSlice> drawn(ParameterStore& store, std::uint64_t seed) {
  store.initialize(seed);
  return slices_of(store.parameters());
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

void TrainConfig::validate(int ranks) const {
  model.validate();
  const auto positive = [](const char* what, std::int64_t value) {
    if (value < 1) fail(fmt::format("{} is {}, expected 1 or more", what, value));
  };
  positive("batch", batch);
  positive("micro-batches", micro_batches);
  positive("steps", steps);
  positive("ranks", ranks);
  if (batch % micro_batches != 0)
    fail(fmt::format("batch {} is not a multiple of micro-batches {}", batch, micro_batches));
  if (batch / ranks < micro_batches)
    fail(fmt::format(
        "batch {} over ranks {} gives some rank {} samples, expected one or more for each of "
        "micro-batches {}",
        batch, ranks, batch / ranks, micro_batches));
  if (warmup_steps < 0) fail(fmt::format("warm-up is {} steps, expected 0 or more", warmup_steps));
  if (!(learning_rate > 0) || !std::isfinite(learning_rate))
    fail(fmt::format("learning rate is {}, expected more than 0", learning_rate));
  if (!(min_learning_rate >= 0 && min_learning_rate <= learning_rate))
    fail(fmt::format("minimum learning rate is {}, expected between 0 and the learning rate {}",
                     min_learning_rate, learning_rate));
  const auto finite = [](const char* what, double value) {
    if (!(value >= 0) || !std::isfinite(value))
      fail(fmt::format("{} is {}, expected 0 or more", what, value));
  };
  finite("clip", clip);
  finite("weight decay", weight_decay);
  for (const double beta : {beta1, beta2})
    if (!(beta >= 0 && beta < 1))
      fail(fmt::format("beta1 is {} and beta2 {}, expected 0 <= beta < 1", beta1, beta2));
  if (gradient_dtype != model.dtype && gradient_dtype != DType::F32)
    fail(fmt::format("gradients in {} beside weights in {}: expected {}F32",
                     name_of(gradient_dtype), name_of(model.dtype),
                     model.dtype == DType::F32 ? "" : name_of(model.dtype) + std::string(" or ")));
}

TrainConfig::Bytes TrainConfig::needed_bytes(int ranks) const {
  const auto L = static_cast<double>(model.layers), C = static_cast<double>(model.width);
  const auto V = static_cast<double>(model.table_rows()), T = static_cast<double>(model.context);
  const double parameters = (V + T) * C + L * (12 * C * C + 13 * C) + 2 * C;
  const DType statistics = statistics_of(model.dtype);
  const std::size_t state = (statistics == model.dtype ? 2 : 3) * size_of(statistics);
  const std::int64_t share = (batch + ranks - 1) / ranks;
  const auto samples = static_cast<double>((share + micro_batches - 1) / micro_batches);
  // Beside what blocks keep: the last norm's two, the logits and a gradient; or, later, what is
  // remade and the gradients of a block's output and of its hidden layer.
  const double of_a_token = recompute.kept_per_token(model) +
                            std::max(V + 3 * C, recompute.remade_per_token(model) + 5 * C);
  return {.model = parameters *
                   static_cast<double>(size_of(model.dtype) + size_of(gradient_dtype) + state),
          .activations = samples * T * of_a_token * static_cast<double>(size_of(model.dtype))};
}

SampleRange part_of(const SampleRange& all, std::int64_t i, std::int64_t parts) {
  return {all.begin + i * all.count() / parts, all.begin + (i + 1) * all.count() / parts};
}

Trainer::Trainer(const Rank& rank, const TrainConfig& config)
    : rank_(rank),
      config_(validated(config, rank.world.size())),
      model_(make_gpt(rank, config.model, config.recompute.parts())),
      store_(rank.device, make_units(model_),
             {.value_dtype = config.model.dtype, .grad_dtype = config.gradient_dtype}),
      optimizer_(
          drawn(store_, config.seed),
          {.beta1 = config.beta1, .beta2 = config.beta2, .weight_decay = config.weight_decay}),
      schedule_{.peak = config.learning_rate,
                .floor = config.min_learning_rate,
                .warmup_steps = config.warmup_steps,
                .total_steps = config.steps} {}

void Trainer::take_weights() {
  for (const Optimizer::State& state : optimizer_.state())
    if (state.name.ends_with("/master"))
      ops::cast(state.value, state.parameter->value().flat(state.begin, state.value.count()));
}

void Trainer::resume(std::int64_t steps, std::int64_t samples) {
  optimizer_.resume(steps);
  samples_ = samples;
}

StepReport Trainer::step(const BatchSampler& data) {
  const std::int64_t step = steps_taken();
  const SampleRange mine = part_of({0, config_.batch}, rank_.world.rank(), rank_.world.size());
  const auto tokens = static_cast<double>(config_.batch * config_.model.context);
  StepReport report{.loss = 0, .learning_rate = schedule_.at(step), .gradient_norm = 0};
  store_.clear_grads();
  for (std::int64_t m = 0; m < config_.micro_batches; ++m) {
    const SampleRange part = part_of(mine, m, config_.micro_batches);
    const Pass pass{.step = static_cast<std::uint64_t>(step),
                    .micro_batch = static_cast<int>(m),
                    .last_micro_batch = m + 1 == config_.micro_batches,
                    .first_sample = part.begin};
    const auto span = rank_.trace.span("other", fmt::format("micro-batch {}", m));
    const Batch batch = [&] {
      const auto data_span = rank_.trace.span("data");
      return data.batch(rank_.device, samples_ + part.begin, part.count());
    }();
    report.loss +=
        forward_backward(model_, batch.tokens, batch.targets, pass, 1.0 / tokens) / tokens;
  }
  store_.complete_grads();
  sum_over_ranks(report);
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

// Each rank's loss and gradients are its samples' part of the means over the global batch: they
// were divided by the tokens of all ranks, so that the sum is the mean, also of shares of unequal
// size.
void Trainer::sum_over_ranks(StepReport& report) {
  const auto span = rank_.trace.span("communication", "sum over ranks");
  CpuDevice host;
  const View loss(&report.loss, {1}, DType::F64, host);
  Work gradients = rank_.world.all_reduce(store_.grads());  // comm: all gradients, once a step
  rank_.world.all_reduce(loss).wait();  // comm: 8 bytes, so that all report the same
  gradients.wait();
}

double Trainer::evaluate(std::span<const Batch> windows) const {
  const auto span = rank_.trace.span("evaluation");
  double sums[] = {0, 0};  // losses, tokens
  for (const Batch& batch : windows) {
    sums[0] += aisc::evaluate(model_, batch.tokens, batch.targets);
    sums[1] += static_cast<double>(batch.tokens.count());
  }
  CpuDevice host;
  const View both(sums, {2}, DType::F64, host);
  rank_.world.all_reduce(both).wait();  // comm: 16 bytes, each rank had windows of its own
  if (sums[1] == 0) fail("evaluate: no windows to evaluate on");
  return sums[0] / sums[1];
}

double Trainer::flops_per_step() const {
  return config_.model.flops_per_token(config_.model.context) *
         static_cast<double>(config_.batch * config_.model.context);
}

double Trainer::hardware_flops_per_step() const {
  const std::int64_t context = config_.model.context;
  return flops_per_step() + config_.recompute.repeated_flops_per_token(config_.model, context) *
                                static_cast<double>(config_.batch * context);
}

}  // namespace aisc
