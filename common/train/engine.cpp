#include "common/train/engine.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "common/core/error.h"

namespace aisc {
namespace {

TrainConfig engine_config(const TrainConfig& config, const StepParts& parts, int ranks) {
  const std::int64_t share = ranks * config.micro_batches;
  if (config.micro_batches < 1 || config.batch < share || config.batch % share != 0)
    fail(
        fmt::format("engine: a batch of {} over {} ranks with {} micro-batches each: expected a "
                    "multiple of {}",
                    config.batch, ranks, config.micro_batches, share));
  if (config.has_mesh() || parts.stages || parts.split || parts.context || parts.batch ||
      parts.reader || parts.architecture || !parts.layers.empty())
    fail(
        "engine: found parts of a step that make or divide a GPT: expected those of data "
        "parallelism, shards, offload, the optimizer and the scale of the loss");
  return config;
}

Model engine_model(Model model) {
  if (!model.loss || model.stages.size() > 1) fail("engine: expected a whole model with its loss");
  for (const auto& layer : model.layers)
    for (const Parameter* p : layer->parameters())
      if (p->sync != Sync::Data)
        fail(fmt::format("engine: {}: its gradients are summed by other ranks than all", p->name));
  return model;
}

}  // namespace

Engine::Engine(const Rank& rank, Model model, const TrainConfig& config, StepParts parts)
    : rank_(rank),
      config_(engine_config(config, parts, rank.world.size())),
      parts_(std::move(parts).completed()),
      model_(engine_model(std::move(model))),
      store_(std::make_unique<ParameterStore>(
          rank.device, make_units(model_),
          ParameterStore::Options{.value_dtype = config.model.dtype,
                                  .grad_dtype = config.gradient_dtype,
                                  .ranks = parts_.shards(rank.world.size()),
                                  .values = parts_.all_values,
                                  .gradients = parts_.all_gradients})),
      reducer_(parts_.reducer(rank_, model_, *store_)),
      schedule_(config.rates()),
      saved_(model_.layers.size() + 1) {
  std::vector<OptimizerSlice> slices = reducer_->slices();
  for (const OptimizerSlice& slice : slices)
    draw(slice.weight, *slice.parameter, slice.begin, config.seed);
  reducer_->take_slices();
  optimizer_ = parts_.optimizer(rank_, nullptr, *store_, std::move(slices), config_);
  reducer_->use(*optimizer_);
  hooks_.push_back(reducer_.get());
  for (const auto& make : parts_.hooks)
    hooks_.push_back(more_hooks_.emplace_back(make(rank_, model_, nullptr)).get());
  for (const auto& make : parts_.update_hooks)
    update_hooks_.push_back(make(rank_, model_, nullptr));
  if (parts_.scale) scale_ = parts_.scale();
}

void Engine::require(Waits now, const char* call) const {
  constexpr const char* kNames[] = {"forward", "backward", "step"};
  if (waits_ != now)
    fail(fmt::format("engine: found {}, expected {} of micro-batch {} of step {}", call,
                     kNames[static_cast<std::size_t>(waits_)], micro_batch_ + 1, steps_ + 1));
}

double Engine::forward(const Batch& batch, double step_terms) {
  require(Waits::Forward, "forward");
  if (micro_batch_ == 0) {
    store_->clear_grads();
    reducer_->begin();
  }
  for (Saved& saved : saved_) saved = {};  // of a forward that threw
  const double terms = batch.term_count();
  const auto parts = static_cast<double>(config_.micro_batches * rank_.world.size());
  const double all = step_terms > 0 ? step_terms : terms * parts;
  const std::int64_t share = config_.batch / rank_.world.size();
  factor_ = loss_scale() / all;
  const Pass pass{
      .step = static_cast<std::uint64_t>(steps_),
      .micro_batch = static_cast<int>(micro_batch_),
      .last_micro_batch = is_boundary(),
      .first_sample = rank_.world.rank() * share + micro_batch_ * share / config_.micro_batches,
      .terms = all};
  current_ = micro_batch_of(batch.share(), pass);
  Tensor x = forward_layers(model_, current_.batch.tokens.share(), saved_, current_.pass, hooks_);
  const double sum =
      model_.loss->forward(std::move(x), current_.batch.targets, saved_.back(), current_.pass);
  waits_ = Waits::Backward;
  return sum / (step_terms > 0 ? step_terms / parts : terms);
}

void Engine::backward() {
  require(Waits::Backward, "backward");
  backward_layers(model_, model_.loss->backward(saved_.back(), factor_), saved_, current_.pass,
                  hooks_);
  current_ = {};
  waits_ = Waits::Step;
}

bool Engine::step() {
  require(Waits::Step, "step");
  waits_ = Waits::Forward;
  if (!is_boundary()) return ++micro_batch_, false;
  micro_batch_ = 0;
  norm_ = scale_ ? scale_->finish(*this, config_.clip, parts_.finish)
                 : parts_.finish(*this, config_.clip);
  ++steps_;
  return std::isfinite(norm_);
}

double Engine::own_square() {
  const double norm = reducer_->norm({});  // of all ranks, by each
  return norm * norm;
}

void Engine::require_finite(double norm) {
  if (!std::isfinite(norm))
    fail(fmt::format("engine: step {}: the norm of the gradients is {}; no weight has moved",
                     steps_ + 1, norm));
}

void Engine::update(double gradient_scale) {
  const auto span = rank_.trace.span("optimizer");
  for (const auto& hook : update_hooks_) hook->before(*optimizer_, steps_);
  optimizer_->step({.learning_rate = learning_rate(), .gradient_scale = gradient_scale});
  for (const auto& hook : update_hooks_) hook->after(*optimizer_, steps_);
}

Tensor Engine::predict(const Tensor& x) const { return aisc::forward(model_, x, hooks_); }

double Engine::evaluate(const Batch& batch) const {
  const MicroBatch windows = micro_batch_of(batch.share(), {.training = false});
  return aisc::evaluate(model_, windows.batch.tokens, windows.batch.targets, hooks_, windows.pass) /
         batch.term_count();
}

}  // namespace aisc
