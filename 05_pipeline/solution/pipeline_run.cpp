#include "05_pipeline/pipeline_run.h"

#include <algorithm>

namespace aisc {
namespace {

// The micro-batches, each with its chunk, with which the chunk's gradients are whole: whose
// gradient is the last one of the list before an update of the chunk, or before the list's end.
// Micro-batches may go backward in any order, so that this need not be the largest number.
std::set<std::pair<int, int>> completing(const std::vector<Action>& list, bool splits_backward) {
  const ActionKind gradient = splits_backward ? ActionKind::WeightGradient : ActionKind::Backward;
  std::set<std::pair<int, int>> all;
  std::map<int, int> last;  // by chunk: the micro-batch of its last gradient since an update
  for (const Action& a : list) {
    if (a.kind == gradient) last[a.chunk] = a.micro_batch;
    if (a.kind != ActionKind::Update) continue;
    if (const auto found = last.extract(a.chunk)) all.insert({found.mapped(), a.chunk});
  }
  for (const auto& [chunk, micro_batch] : last) all.insert({micro_batch, chunk});
  return all;
}

enum class Keep { All, Nothing };
std::vector<Saved> new_saved(std::size_t layers, Keep keep) {
  std::vector<Saved> saved(layers + 1);
  if (keep == Keep::Nothing)
    for (Saved& each : saved) each = Saved::nothing();
  return saved;
}

}  // namespace

PipelineRun::PipelineRun(const Rank& rank, const Model& model, StageComms& comms,
                         const Handovers& handovers, const PipelineOptions& options,
                         WeightVersions* versions, const ReadMicroBatch& read, Hooks hooks)
    : rank_(rank),
      model_(model),
      handovers_(handovers),
      options_(options),
      versions_(versions),
      read_(read),
      hooks_(hooks),
      self_(comms.forward->rank()),
      list_(handovers.schedule().actions[index(self_)]),
      completing_(completing(list_, handovers.schedule().splits_backward)),
      micro_batches_(index(handovers.schedule().micro_batches)),
      kept_(options.keep_bytes),
      report_{.losses = std::vector<double>(micro_batches_.size())},
      shape_([this, parts = model.token_parts](int stage, int m) {
        const Shape tokens = micro_batch(m).batch.tokens.shape();  // (B, T)
        return options_.input_shape(stage, parts == 1 ? tokens : tokens.with(1, tokens[1] / parts));
      }),
      links_(rank, comms, handovers, shape_, options.dtype, options.codes) {}

PipelineRunReport PipelineRun::run(double loss_factor, const std::function<void()>& update) {
  loss_factor_ = loss_factor;
  for (std::size_t i = 0; i < list_.size(); ++i) {
    const Action& a = list_[i];
    const auto span = rank_.trace.span(part_of_step(a.kind), to_string(a, schedule().chunks()));
    // Sends do not wait, receives do: a rank stands still where its list runs ahead of its
    // neighbours'.
    if (a.kind == ActionKind::Forward) forward(i, a);
    if (a.kind == ActionKind::Backward) backward(i, a);
    if (a.kind == ActionKind::WeightGradient) weight_gradient(a);
    if (a.kind == ActionKind::Update && versions_) versions_->update(update);
  }
  links_.finish();
  return report_;
}

const MicroBatch& PipelineRun::micro_batch(int m) {
  std::optional<MicroBatch>& micro = micro_batches_[index(m)];
  if (!micro) micro = read_(m);
  return *micro;
}

bool PipelineRun::is_last_stage(const Action& a) const {
  return schedule().stage_of[index(self_)][index(a.chunk)] == schedule().stages() - 1;
}

const LayerRange& PipelineRun::layers(const Action& a) const {
  return model_.stages[index(a.chunk)];
}

void PipelineRun::forward(std::size_t position, const Action& a) {
  const MicroBatch& micro = micro_batch(a.micro_batch);
  const bool trains = micro.pass.training;
  if (versions_ && trains) versions_->use_for_forward(a.micro_batch);
  Part& part = parts_[{a.micro_batch, a.chunk}];
  part.pass = micro.pass;
  part.pass.last_micro_batch = completing_.contains({a.micro_batch, a.chunk});
  part.kept = trains && (options_.again == Again::Never || kept_.has_room());
  part.saved = new_saved(layers(a).count(), part.kept ? Keep::All : Keep::Nothing);
  Tensor x = links_.receives(position) ? links_.receive(position) : micro.batch.tokens.share();
  if (trains && options_.again != Again::Never) part.input = x.share();
  Tensor y = through_layers(a, part, std::move(x));
  if (part.kept) hold(a, part);
  links_.send(position, std::move(y));
  if (!trains) parts_.erase({a.micro_batch, a.chunk});
}

Tensor PipelineRun::through_layers(const Action& a, Part& part, Tensor x) {
  x = forward_layers(model_, layers(a), std::move(x), part.saved, part.pass, hooks_);
  if (!is_last_stage(a)) return x;
  const Tensor& targets = micro_batch(a.micro_batch).batch.targets;
  const double loss = model_.loss->forward(std::move(x), targets, part.saved.back(), part.pass);
  if (!part.pass.recompute) report_.losses[index(a.micro_batch)] = loss;
  return {};
}

void PipelineRun::hold(const Action& a, Part& part) {
  const std::int64_t bytes = bytes_of(part.saved);
  if (options_.again != Again::Never && !kept_.keep(bytes)) {
    part.kept = false;
    part.saved = new_saved(layers(a).count(), Keep::Nothing);
    return;
  }
  count(part.bytes = bytes);
}

void PipelineRun::count(std::int64_t saved_bytes) {
  saved_bytes_ += saved_bytes;
  report_.most_saved_bytes = std::max(report_.most_saved_bytes, saved_bytes_);
}

void PipelineRun::remake(const Action& a, Part& part) {
  part.saved = new_saved(layers(a).count(), Keep::All);
  part.pass.recompute = true;
  through_layers(a, part, std::move(part.input));
  part.pass.recompute = false;
  count(part.bytes = bytes_of(part.saved));
}

void PipelineRun::backward(std::size_t position, const Action& a) {
  Part& part = parts_.at({a.micro_batch, a.chunk});
  if (versions_) versions_->use_for_backward(a.micro_batch);
  Tensor dy = prepare_backward(
      options_.again, part.kept, [&] { remake(a, part); },
      [&] { return links_.receives(position) ? links_.receive(position) : Tensor(); });
  if (is_last_stage(a)) dy = model_.loss->backward(part.saved.back(), loss_factor_);
  if (schedule().splits_backward) part.pass.deferred = &part.deferred;
  Tensor dx = backward_layers(model_, layers(a), std::move(dy), part.saved, part.pass, hooks_);
  links_.send(position, std::move(dx));
  if (!schedule().splits_backward) end(a, part);
}

void PipelineRun::weight_gradient(const Action& a) {
  Part& part = parts_.at({a.micro_batch, a.chunk});
  part.deferred.run_all();
  end(a, part);
}

void PipelineRun::end(const Action& a, const Part& part) {
  saved_bytes_ -= part.bytes;
  if (part.kept) kept_.give_back(part.bytes);
  parts_.erase({a.micro_batch, a.chunk});
  if (++ended_[a.micro_batch] == schedule().chunks()) micro_batches_[index(a.micro_batch)].reset();
  if (!versions_) return;
  report_.most_versions = std::max(report_.most_versions, versions_->kept());
  versions_->done(a.micro_batch);
}

}  // namespace aisc
