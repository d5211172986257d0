#include "common/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "common/core/error.h"
#include "common/optim/clip.h"

namespace aisc {
namespace {

const TrainConfig& validated(const TrainConfig& config, int ranks) {
  config.validate(ranks);
  return config;
}

std::unique_ptr<Optimizer> adamw(const Rank& /*rank*/, Mesh* /*mesh*/, ParameterStore& /*store*/,
                                 std::vector<OptimizerSlice> slices, const TrainConfig& config) {
  return std::make_unique<AdamW>(
      std::move(slices),
      AdamW::Options{
          .beta1 = config.beta1, .beta2 = config.beta2, .weight_decay = config.weight_decay});
}

std::unique_ptr<Reducer> sum_at_the_end(const Rank& rank, const Model& /*model*/,
                                        ParameterStore& store) {
  return std::make_unique<SumAtTheEnd>(rank, store);
}

// With the plain form of what is not given.
StepParts completed(StepParts parts) {
  if (!parts.optimizer) parts.optimizer = adamw;
  if (!parts.reducer) parts.reducer = sum_at_the_end;
  if (!parts.loop) parts.loop = one_after_another;
  return parts;
}

// Of a pipeline, and of ranks that share layers.
std::unique_ptr<Mesh> make_mesh(const Rank& rank, const TrainConfig& config,
                                const StepParts& parts) {
  const auto given = [](int degree, const char* name, bool part, const char* what) {
    if ((degree > 1) != part)
      fail(fmt::format("{} is {}, {} {}", name, degree, part ? "and" : "but no", what));
  };
  given(config.pp, "pp", static_cast<bool>(parts.stages), "stages are given");
  given(config.tp, "tp", static_cast<bool>(parts.split), "split of layers is given");
  if (config.pp == 1 && config.tp == 1) return nullptr;
  return std::make_unique<Mesh>(
      rank.world,
      MeshShape{.dp = config.data_ranks(rank.world.size()), .pp = config.pp, .tp = config.tp});
}

std::string in_words(double x) { return std::isnan(x) ? "NaN" : fmt::format("{}", x); }

// Steps are counted from 1 where a person reads them.
void require_finite(std::int64_t step, const StepReport& report, const char* clipping) {
  if (std::isfinite(report.loss) && std::isfinite(report.gradient_norm)) return;
  fail(fmt::format(
      "step {}: the loss is {} and the norm of the gradients {}. The usual causes: a learning rate "
      "that is too high (it is {:.3g} in this step; try a third of it, or a longer warm-up), {}or "
      "too short a precision (try --precision f32)",
      step + 1, in_words(report.loss), in_words(report.gradient_norm), report.learning_rate,
      clipping));
}

}  // namespace

SampleRange part_of(const SampleRange& all, std::int64_t i, std::int64_t parts) {
  return {all.begin + i * all.count() / parts, all.begin + (i + 1) * all.count() / parts};
}

Trainer::Trainer(const Rank& rank, const TrainConfig& config, StepParts parts)
    : rank_(rank),
      config_(validated(config, rank.world.size())),
      parts_(completed(std::move(parts))),
      mesh_(make_mesh(rank, config_, parts_)),
      data_{mesh_ ? mesh_->gradients() : rank.world, rank.device, rank.clock, rank.trace},
      stages_(parts_.stages ? parts_.stages(rank, *mesh_, config_) : nullptr),
      model_(make_model()),
      store_(rank.device, make_units(model_),
             {.value_dtype = config.model.dtype,
              .grad_dtype = config.gradient_dtype,
              .ranks = parts_.divided ? data_.world.size() : 1,
              .values = parts_.all_values,
              .gradients = parts_.all_gradients}),
      schedule_{.peak = config.learning_rate,
                .floor = config.min_learning_rate,
                .warmup_steps = config.warmup_steps,
                .total_steps = config.steps} {
  reducer_ = parts_.reducer(data_, model_, store_);
  hooks_ = {reducer_.get()};
  std::vector<OptimizerSlice> slices = reducer_->slices();
  for (const OptimizerSlice& slice : slices)
    draw(slice.weight, *slice.parameter, slice.begin, config.seed);
  reducer_->take_slices();
  optimizer_ = parts_.optimizer(data_, mesh_.get(), store_, std::move(slices), config_);
  reducer_->use(*optimizer_);
}

Model Trainer::make_model() const {
  const GptParts whole = gpt2_parts();
  Model model =
      make_gpt(rank_, config_.model,
               config_.recompute.parts(parts_.split ? parts_.split(whole, mesh_->tp()) : whole),
               stages_ ? stages_->blocks() : std::vector<BlockRange>(1));
  // What tensor ranks do not share they all have, and the first counts it.
  if (mesh_ && mesh_->place().tp > 0)
    for (const Unit& unit : make_units(model))
      for (Parameter* p : unit.parameters) p->counts = p->counts && p->split_dim >= 0;
  return model;
}

bool Trainer::writes(const OptimizerSlice& slice) const {
  return (reducer_->divides() || data_.world.rank() == 0) &&
         !(slice.parameter && !slice.parameter->counts);
}

void Trainer::resume(std::int64_t steps, std::int64_t samples,
                     std::optional<std::int64_t> updates) {
  reducer_->take_slices();
  optimizer_->resume(updates.value_or(steps * updates_per_step()));
  steps_ = steps;
  samples_ = samples;
}

StepReport Trainer::step(const BatchSampler& data) {
  const std::int64_t step = steps_taken();
  const auto tokens = static_cast<double>(config_.batch * config_.model.context);
  StepReport report{.loss = 0, .learning_rate = schedule_.at(step), .gradient_norm = 0};
  store_.clear_grads();
  reducer_->begin();
  const bool updates = stages_ && stages_->updates() > 0;  // on their way
  if (updates)
    stages_->use([&] {
      sum_gradients();
      // One update comes behind all micro-batches, and may wait for the norm of all stages.
      const bool clips = stages_->updates() == 1 && config_.clip > 0;
      update({.learning_rate = report.learning_rate,
              .gradient_scale = clips ? clip_factor(norm(), config_.clip) : 1.0});
      store_.clear_grads();
      reducer_->begin();
    });
  report.loss = run_micro_batches(data, tokens) / tokens;
  if (!counts_losses()) report.loss = 0;
  {
    const auto span = rank_.trace.span("communication", "sum over ranks");
    CpuDevice host;
    const View loss(&report.loss, {1}, DType::F64, host);
    Work sum = rank_.world.all_reduce(loss);  // comm: 8 bytes, so that all report the same
    if (!updates) sum_gradients();
    sum.wait();
  }
  report.gradient_norm = norm();
  const bool might_clip = config_.clip == 0 && updates_per_step() == 1;
  require_finite(step, report, might_clip ? "no clipping (--clip 1), " : "");
  if (!updates)
    update({.learning_rate = report.learning_rate,
            .gradient_scale = clip_factor(report.gradient_norm, config_.clip)});
  ++steps_;
  samples_ += config_.batch;
  return report;
}

double Trainer::run_micro_batches(const BatchSampler& data, double tokens) {
  const auto read = [&](std::int64_t m) { return micro_batch(data, m); };
  if (stages_)
    return stages_->run(model_, config_.micro_batches, read, updates_per_step() / tokens, hooks_);
  return parts_.loop(rank_, model_, config_.micro_batches, read, 1.0 / tokens, hooks_);
}

// Over the ranks that hold the same, and then over the two tables that are one.
void Trainer::sum_gradients() {
  reducer_->finish();
  if (!mesh_ || !mesh_->embedding()) return;
  for (const OptimizerSlice& slice : optimizer_->slices())
    if (slice.parameter && slice.parameter->tied != Tied::No)
      mesh_->embedding()->all_reduce(slice.gradient).wait();  // comm: the table's, of two stages
}

double Trainer::norm() const {
  const auto span = rank_.trace.span("clip");
  double norm = reducer_->norm();
  if (!mesh_) return norm;
  double square = norm * norm;
  CpuDevice host;
  const View sum(&square, {1}, DType::F64, host);
  mesh_->pp().all_reduce(sum).wait();  // comm: 8 bytes, the stages'
  mesh_->tp().all_reduce(sum).wait();  // comm: 8 bytes, the parts of layers'
  return std::sqrt(square);
}

void Trainer::update(const OptimizerStep& step) {
  {
    const auto span = rank_.trace.span("optimizer");
    optimizer_->step(step);
  }
  reducer_->updated();
}

MicroBatch Trainer::micro_batch(const BatchSampler& data, std::int64_t m) const {
  const auto span = rank_.trace.span("data");
  const SampleRange mine = part_of({0, config_.batch}, data_.world.rank(), data_.world.size());
  const SampleRange part = part_of(mine, m, config_.micro_batches);
  return {.batch = data.batch(rank_.device, samples_ + part.begin, part.count()),
          .pass = {.step = static_cast<std::uint64_t>(steps_taken()),
                   .micro_batch = static_cast<int>(m),
                   .last_micro_batch = m + 1 == config_.micro_batches,
                   .first_sample = part.begin}};
}

double Trainer::evaluate(std::span<const Batch> windows) const {
  const auto span = rank_.trace.span("evaluation");
  std::vector<Batch> all;
  for (const Batch& batch : windows) all.push_back({batch.tokens.share(), batch.targets.share()});
  const Tensor token = Tensor::zeros({1, 1}, DType::I32, rank_.device);
  for (std::int64_t i = missing_passes(windows.size()); i > 0; --i)
    all.push_back({token.share(), token.share()});
  const std::vector<double> losses = losses_of(all);
  double sums[] = {0, 0};  // losses, tokens
  for (std::size_t i = 0; i < windows.size() && model_.loss && counts_losses(); ++i) {
    sums[0] += losses[i];
    sums[1] += static_cast<double>(windows[i].tokens.count());
  }
  CpuDevice host;
  const View both(sums, {2}, DType::F64, host);
  rank_.world.all_reduce(both).wait();  // comm: 16 bytes, each rank had windows of its own
  if (sums[1] == 0) fail("evaluate: no windows to evaluate on");
  return sums[0] / sums[1];
}

std::vector<double> Trainer::losses_of(std::span<const Batch> windows) const {
  if (stages_) return stages_->evaluate(model_, windows, hooks_);
  std::vector<double> losses;
  for (const Batch& batch : windows)
    losses.push_back(aisc::evaluate(model_, batch.tokens, batch.targets, hooks_));
  return losses;
}

// Where passes are taken together: how many a rank with fewer than others takes that count nothing.
std::int64_t Trainer::missing_passes(std::size_t own) const {
  if (!reducer_->joins_forward()) return 0;
  auto most = static_cast<std::int64_t>(own);
  CpuDevice host;
  const View largest(&most, {1}, DType::I64, host);
  data_.world.all_reduce(largest, ReduceOp::Max).wait();  // comm: 8 bytes
  return most - static_cast<std::int64_t>(own);
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
