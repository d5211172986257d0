#include "common/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/host_values.h"
#include "common/core/error.h"
#include "common/optim/clip.h"

namespace aisc {
namespace {

const TrainConfig& validated(const TrainConfig& config, int ranks) {
  config.validate(ranks);
  return config;
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
  given(config.cp, "cp", static_cast<bool>(parts.context), "context's parts are given");
  return config.has_mesh() ? parts.mesh(rank, config.mesh(rank.world.size())) : nullptr;
}

std::string in_words(double x) { return std::isnan(x) ? "NaN" : fmt::format("{}", x); }

}  // namespace

Trainer::Trainer(const Rank& rank, const TrainConfig& config, StepParts parts)
    : rank_(rank),
      config_(validated(config, rank.world.size())),
      parts_(std::move(parts).completed()),
      mesh_(make_mesh(rank, config_, parts_)),
      data_{mesh_ ? mesh_->gradients() : rank.world, rank.device, rank.clock, rank.trace},
      kept_(std::make_unique<KeptBytes>(config.recompute.keep_bytes)),
      stages_(parts_.stages ? parts_.stages(rank, *mesh_, config_, parts_of_stages()) : nullptr),
      model_(make_model()),
      schedule_(config.rates()) {
  for (const Sync sync : {Sync::Data, Sync::DataAndTensor, Sync::ExpertData})
    if (sync == Sync::Data || !make_units(model_, sync).empty())
      synced_.push_back(make_synced(sync));
  if (parts_.reader) {
    Communicator& readers = mesh_ ? mesh_->dp() : rank.world;
    reader_ = parts_.reader({readers, rank.device, rank.clock, rank.trace}, config_);
  }
  std::vector<OptimizerSlice> slices;
  for (const Synced& its : synced_) {
    hooks_.push_back(its.reducer.get());
    for (OptimizerSlice& slice : its.reducer->slices()) slices.push_back(std::move(slice));
  }
  for (const auto& make : parts_.hooks)
    hooks_.push_back(more_hooks_.emplace_back(make(rank_, model_, mesh_.get())).get());
  for (const OptimizerSlice& slice : slices)
    draw(slice.weight, *slice.parameter, slice.begin, config.seed);
  for (const Synced& its : synced_) its.reducer->take_slices();
  optimizer_ = parts_.optimizer(data_, mesh_.get(), parameters(), std::move(slices), config_);
  for (const Synced& its : synced_) its.reducer->use(*optimizer_);
  for (const auto& make : parts_.update_hooks)
    update_hooks_.push_back(make(rank_, model_, mesh_.get()));
  if (parts_.scale) scale_ = parts_.scale();
  if (scale_ && stages_ && stages_->updates() > 0)
    fail(
        "a loss that is scaled needs steps that can be skipped as a whole: found a schedule whose "
        "stages update their weights on the way");
}

Communicator& Trainer::ranks_of(Sync sync) const {
  if (!mesh_ || sync == Sync::Data) return data_.world;
  return sync == Sync::ExpertData ? mesh_->expert_gradients() : mesh_->tensor_gradients();
}

Trainer::Synced Trainer::make_synced(Sync sync) const {
  Communicator& summing = ranks_of(sync);
  Synced its{sync, {summing, rank_.device, rank_.clock, rank_.trace}, nullptr, nullptr};
  its.store = std::make_unique<ParameterStore>(
      rank_.device, make_units(model_, sync),
      ParameterStore::Options{.value_dtype = config_.model.dtype,
                              .grad_dtype = config_.gradient_dtype,
                              .ranks = parts_.shards(summing.size()),
                              .values = parts_.all_values,
                              .gradients = parts_.all_gradients});
  its.reducer = parts_.reducer(its.ranks, model_, *its.store);
  return its;
}

std::vector<const ParameterStore*> Trainer::stores() const {
  std::vector<const ParameterStore*> all;
  for (const Synced& its : synced_) all.push_back(its.store.get());
  return all;
}

std::vector<Reducer::Groups> Trainer::groups() const {
  std::vector<Reducer::Groups> all;
  for (const Synced& its : synced_) all.push_back(its.reducer->groups());
  return all;
}

GptParts Trainer::whole_parts() const {
  GptParts parts = parts_.with_experts(config_.model, gpt2_parts(), nullptr);
  return parts_.architecture ? parts_.architecture(std::move(parts), nullptr) : parts;
}

// Stages are cut as those of a GPT of as many blocks, also of another architecture.
GptParts Trainer::parts_of_stages() const {
  GptParts parts = parts_.with_experts(config_.model, gpt2_parts(), nullptr);
  parts.stage_input = whole_parts().stage_input;
  return parts;
}

Model Trainer::make_model() const {
  GptParts parts = gpt2_parts();
  parts.masks = parts_.masks;
  if (parts_.core)
    parts.core = [this](const GptParts::Wanted& w) {
      return parts_.core(w, mesh_.get(), w.config.heads / w.parts.head_parts);
    };
  if (parts_.split) parts = parts_.split(std::move(parts), mesh_->tp());
  parts = parts_.with_experts(config_.model, std::move(parts), mesh_.get());
  if (parts_.architecture) parts = parts_.architecture(std::move(parts), mesh_.get());
  for (const auto& wrap : parts_.layers) parts = wrap(std::move(parts));
  return make_gpt(rank_, config_.model,
                  config_.recompute.parts(std::move(parts), parts_.recomputed),
                  stages_ ? stages_->blocks() : std::vector<BlockRange>(1));
}

bool Trainer::is_first_copy(const OptimizerSlice& slice) const {
  for (const Synced& its : synced_)
    if (slice.parameter && its.sync == slice.parameter->sync)
      if (const Communicator* copies = its.reducer->groups().across) return copies->rank() == 0;
  return true;
}

bool Trainer::writes(const OptimizerSlice& slice) const {
  if (!is_first_copy(slice)) return false;
  MeshPlace place = mesh_ ? mesh_->place() : MeshPlace{};
  place.dp = data_.world.rank();
  place.expert_dp = ranks_of(Sync::ExpertData).rank();
  return slice.parameter ? counts(*slice.parameter, reducer().divides(), place)
                         : reducer().divides() || place.dp == 0;
}

void Trainer::resume(std::int64_t steps, std::int64_t samples,
                     std::optional<std::int64_t> updates) {
  for (const Synced& its : synced_) its.reducer->take_slices();
  optimizer_->resume(updates.value_or(steps * updates_per_step()));
  steps_ = steps;
  samples_ = samples;
}

StepReport Trainer::step(const SampleSource& data) {
  updates_on_the_way_ = 0;
  const std::int64_t skipped = scale_ ? scale_->skipped() : 0;
  report_ = {.loss = 0, .learning_rate = schedule_.at(steps_ - skipped), .gradient_norm = 0};
  if (scale_) report_.scale = scale_->factor();
  begin_gradients();
  const double loss = run_micro_batches(data);
  // Each rank's layers add a part of their own to the extra loss, also those of tensor ranks.
  losses_ = {counts_losses() ? loss : 0,
             extra_.sum,
             extra_.choices,
             extra_.dropped,
             extra_.samples,
             extra_.busiest};
  const View losses(losses_.data(), {has_experts() ? std::ssize(losses_) : 1}, DType::F64, host_);
  loss_sum_ = rank_.world.all_reduce(losses);  // comm: 8 bytes, or 48, so that all report the same
  finish_step();
  ++steps_;
  samples_ += config_.batch;
  return report_;
}

void Trainer::finish_step() {
  if (stages_ && stages_->updates() > 0) {
    wait_for_loss();
    require_finite(std::sqrt(sum_over_world(last_square_)));
  } else if (scale_) {
    report_.gradient_norm = scale_->finish(*this, config_.clip, parts_.finish);
    report_.skipped = !std::isfinite(report_.gradient_norm);
  } else {
    parts_.finish(*this, config_.clip);
  }
}

double Trainer::run_micro_batches(const SampleSource& data) {
  const auto read = [&](std::int64_t m) { return micro_batch(data, m); };
  terms_ = data.terms(samples_, config_.batch);
  if (!(terms_ > 0))
    fail(fmt::format("step {}: none of its {} samples has a target, expected one or more",
                     steps_ + 1, config_.batch));
  const double factor = report_.scale * updates_per_step(), loss_factor = factor / terms_;
  extra_ = {.factor = factor / tokens_per_step()};
  const auto run = [&] {
    if (!stages_)
      return parts_.loop(rank_, model_, config_.micro_batches, read, loss_factor, hooks_);
    return stages_->run(model_, config_.micro_batches, read, loss_factor, hooks_,
                        [this] { update_on_the_way(); });
  };
  return run() / terms_;
}

// One update comes behind all micro-batches, and may wait for the norm of all stages. Of several
// none does: each stage goes on as soon as its own gradients are there.
void Trainer::update_on_the_way() {
  sum_over_data_ranks();
  sum_tied_tables();
  if (++updates_on_the_way_ == stages_->updates()) last_square_ = own_square();
  const bool clips = stages_->updates() == 1 && config_.clip > 0;
  update(clips ? clip_factor(std::sqrt(sum_over_world(last_square_)), config_.clip) : 1.0);
  gather_weights();
  begin_gradients();
}

void Trainer::begin_gradients() {
  for (const Synced& its : synced_) {
    its.store->clear_grads();
    its.reducer->begin();
  }
}

void Trainer::sum_over_data_ranks() {
  for (const Synced& its : synced_) its.reducer->finish();
}

void Trainer::sum_tied_tables() {
  if (!mesh_ || !mesh_->embedding()) return;
  const auto span = rank_.trace.span("communication", "tied table");
  for (const OptimizerSlice& slice : optimizer_->slices())
    if (slice.parameter && slice.parameter->tied != Tied::No)
      mesh_->embedding()->all_reduce(slice.gradient).wait();  // comm: the table's, of two stages
}

// Where every data-parallel rank has all of the sums, each group of ep ranks counts them, the first
// of them what is no expert's: they are added up over ep and the other directions alone.
MeshPlace Trainer::counting_place() const {
  MeshPlace place = mesh_ ? mesh_->place() : MeshPlace{};
  place.dp = place.ep;
  place.expert_dp = 0;
  return place;
}

void Trainer::wait_for_loss() {
  const auto span = rank_.trace.span("communication", "loss");
  loss_sum_.wait();
  report_.loss = losses_[0];
  report_.extra = losses_[1] / tokens_per_step();
  report_.dropped = losses_[3] / std::max(1.0, losses_[2]);
  report_.busiest = losses_[5] / std::max(1.0, losses_[4]);
}

double Trainer::own_square() {
  wait_for_loss();
  const auto span = rank_.trace.span("clip");
  if (mesh_ && parts_.own_square) {
    std::vector<OptimizerSlice> counted = optimizer_->slices();
    std::erase_if(counted, [this](const OptimizerSlice& slice) { return !is_first_copy(slice); });
    return parts_.own_square(counted, reducer().divides(), counting_place());
  }
  const MeshPlace place = counting_place();
  double square = 0;
  for (const Synced& its : synced_) {
    const double norm = its.reducer->norm(place);  // of all its ranks, by each
    const bool first_of_tp = its.sync != Sync::DataAndTensor || place.tp == 0;
    if (its.sync == Sync::ExpertData || (place.ep == 0 && first_of_tp)) square += norm * norm;
  }
  return square;
}

double Trainer::sum_over_world(double own) {
  if (!mesh_) return own;  // Reducer::norm is that of all data-parallel ranks
  const auto span = rank_.trace.span("communication", "norm");
  if (parts_.own_square && reducer().divides())
    own = sum_of_all(data_.world, own);  // comm: 8 bytes, the shards'
  else
    own = sum_of_all(mesh_->ep(), own);  // comm: 8 bytes, the experts'
  own = sum_of_all(mesh_->pp(), own);    // comm: 8 bytes, the stages'
  return sum_of_all(mesh_->tp(), own);   // comm: 8 bytes, the parts of layers'
}

// Steps are counted from 1 where a person reads them.
void Trainer::require_finite(double norm) {
  report_.gradient_norm = norm;
  if (std::isfinite(report_.loss) && std::isfinite(norm)) return;
  const bool might_clip = config_.clip == 0 && updates_per_step() == 1;
  fail(fmt::format(
      "step {}: the loss is {} and the norm of the gradients {}. The usual causes: a learning rate "
      "that is too high (it is {:.3g} in this step; try a third of it, or a longer warm-up), {}or "
      "too short a precision (try F32)",
      steps_ + 1, in_words(report_.loss), in_words(norm), report_.learning_rate,
      might_clip ? "no clipping (try a norm of 1), " : ""));
}

void Trainer::update(double gradient_scale) {
  const auto span = rank_.trace.span("optimizer");
  for (const auto& hook : update_hooks_) hook->before(*optimizer_, steps_);
  optimizer_->step({.learning_rate = report_.learning_rate, .gradient_scale = gradient_scale});
  for (const auto& hook : update_hooks_) hook->after(*optimizer_, steps_);
}

void Trainer::gather_weights() {
  for (const Synced& its : synced_) its.reducer->updated();
}

MicroBatch Trainer::micro_batch(const SampleSource& data, std::int64_t m) {
  const auto span = rank_.trace.span("data");
  const Range mine = share_of(config_.batch, data_ranks().rank(), data_ranks().size());
  const Range part = share_of(mine, m, config_.micro_batches);
  const std::int64_t first = samples_ + part.begin;
  Pass pass = of_own_tokens(config_.model.context);
  pass.step = static_cast<std::uint64_t>(steps_taken());
  pass.micro_batch = static_cast<int>(m);
  pass.last_micro_batch = m + 1 == config_.micro_batches;
  pass.first_sample = part.begin;
  pass.kept = kept_.get();
  pass.extra = &extra_;
  pass.terms = terms_;
  Batch whole = reader_ ? reader_->read(data, first, part.count())
                        : data.batch(rank_.device, first, part.count());
  if (parts_.batch) whole = parts_.batch(std::move(whole));
  return micro_batch_of(own_tokens(std::move(whole)), pass);
}

TokenPart Trainer::token_part(std::int64_t tokens) const {
  if (config_.cp == 1) return {tokens};
  return parts_.context(mesh_->place().cp, config_.cp, tokens);
}

Pass Trainer::of_own_tokens(std::int64_t tokens) const {
  return {.tokens = token_part(tokens).runs, .sequence = tokens};
}

Batch Trainer::own_tokens(Batch whole) const {
  if (config_.cp == 1) return whole;
  const TokenPart part = token_part(whole.tokens.shape()[1]);
  return batch_of_part(std::move(whole), part);
}

double Trainer::flops_per_step() const { return aisc::flops_per_step(config_, parts_); }

double Trainer::tokens_per_step() const { return aisc::tokens_per_step(config_, parts_); }

double Trainer::hardware_flops_per_step() const {
  const std::int64_t context = config_.model.context;
  return flops_per_step() +
         config_.recompute.repeated_flops_per_token(config_.model, context) * tokens_per_step();
}

}  // namespace aisc
