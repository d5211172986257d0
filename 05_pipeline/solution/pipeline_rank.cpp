#include "05_pipeline/pipeline_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "05_pipeline/check.h"
#include "common/core/error.h"

namespace aisc {
namespace {

std::size_t index(int i) { return static_cast<std::size_t>(i); }

Schedule checked(Schedule schedule, const Communicator& pp, const Model& model) {
  std::string all;
  for (const std::string& problem : problems(schedule)) all += "\n  " + problem;
  if (!all.empty()) fail(fmt::format("pipeline: {} cannot be executed:{}", schedule.name, all));
  if (schedule.ranks() != pp.size())
    fail(fmt::format("pipeline: {} is of {} ranks, {} has {}", schedule.name, schedule.ranks(),
                     pp.name(), pp.size()));
  if (model.stages.size() != index(schedule.chunks()))
    fail(fmt::format("pipeline: the model has {} stages on rank {}, {} has {}", model.stages.size(),
                     pp.rank(), schedule.name, schedule.chunks()));
  return schedule;
}

// Of the trace: see app/report/page.js and timelines.
const char* part_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::Forward:
      return "forward";
    case ActionKind::Backward:
      return "backward";
    case ActionKind::WeightGradient:
      return "weight gradient";
    default:
      return "update";
  }
}

// Of all chunks forward: for windows that nobody trains on.
Schedule forward_alone(const Schedule& of, int micro_batches) {
  Schedule schedule{.name = "forward", .micro_batches = micro_batches, .stage_of = of.stage_of};
  schedule.actions.resize(index(of.ranks()));
  for (auto& list : schedule.actions)
    for (int c = 0; c < of.chunks(); ++c)
      for (int m = 0; m < micro_batches; ++m) list.push_back({ActionKind::Forward, m, c});
  return schedule;
}

}  // namespace

class PipelineRank::Running {
 public:
  Running(PipelineRank& of, const Handovers& handovers, const ReadMicroBatch& read, Hooks hooks)
      : of_(of),
        handovers_(handovers),
        list_(handovers.schedule().actions[index(of.self_)]),
        read_(read),
        hooks_(hooks),
        micro_batches_(index(handovers.schedule().micro_batches)),
        losses_(micro_batches_.size()),
        kept_(of.options_.keep_bytes),
        shape_([this](int stage, int m) {
          return of_.options_.input_shape(stage, micro_batch(m).batch.tokens.shape());
        }),
        links_(of.rank_, of.comms_, handovers, shape_, of.options_.dtype) {
    for (const Action& a : list_)
      if (a.kind == ActionKind::Update) last_of_update_[a.chunk].push_back(a.micro_batch);
  }

  // One a micro-batch.
  std::vector<double> run(double loss_factor, const std::function<void()>& update) {
    loss_factor_ = loss_factor;
    for (std::size_t i = 0; i < list_.size(); ++i) {
      const Action& a = list_[i];
      const auto span =
          of_.rank_.trace.span(part_of(a.kind), to_string(a, handovers_.schedule().chunks()));
      if (a.kind == ActionKind::Forward) forward(i, a);
      if (a.kind == ActionKind::Backward) backward(i, a);
      if (a.kind == ActionKind::WeightGradient) weight_gradient(a);
      if (a.kind == ActionKind::Update && update) of_.versions_->update(update);
    }
    links_.finish();
    return losses_;
  }

 private:
  // A micro-batch on one of this rank's stages.
  struct Part {
    Pass pass;
    Tensor input;              // where forward is to run again
    std::vector<Saved> saved;  // one a layer, the last for the loss
    DeferredGrads deferred;
    std::int64_t bytes = 0;  // of what forward saved
    bool kept = true;
  };

  const MicroBatch& micro_batch(int m) {
    std::optional<MicroBatch>& micro = micro_batches_[index(m)];
    if (!micro) micro = read_(m);
    return *micro;
  }
  bool is_last_stage(const Action& a) const {
    const Schedule& s = handovers_.schedule();
    return s.stage_of[index(of_.self_)][index(a.chunk)] == s.stages() - 1;
  }
  const LayerRange& layers(const Action& a) const { return of_.model_.stages[index(a.chunk)]; }

  // Its own losses are in the list once; a forward that is repeated leaves them.
  Tensor through_layers(const Action& a, Part& part, Tensor x) {
    x = forward_layers(of_.model_, layers(a), std::move(x), part.saved, part.pass, hooks_);
    if (!is_last_stage(a)) return x;
    const double loss = of_.model_.loss->forward(
        std::move(x), micro_batch(a.micro_batch).batch.targets, part.saved.back());
    if (!part.pass.recompute) losses_[index(a.micro_batch)] = loss;
    return {};
  }
  static std::vector<Saved> new_saved(std::size_t count, bool keep) {
    std::vector<Saved> saved(count);
    for (Saved& each : saved)
      if (!keep) each = Saved::nothing();
    return saved;
  }

  void forward(std::size_t position, const Action& a) {
    const MicroBatch& micro = micro_batch(a.micro_batch);
    if (of_.versions_ && micro.pass.training) of_.versions_->use_for_forward(a.micro_batch);
    Part& part = parts_[{a.micro_batch, a.chunk}];
    part.pass = micro.pass;
    const std::vector<int>& updates = last_of_update_[a.chunk];
    if (!updates.empty())
      part.pass.last_micro_batch =
          std::find(updates.begin(), updates.end(), a.micro_batch) != updates.end();
    const bool recomputes = of_.options_.again != Again::Never && part.pass.training;
    part.kept = part.pass.training && (!recomputes || kept_.has_room());
    part.saved = new_saved(layers(a).count() + 1, part.kept);
    Tensor x = links_.receives(position) ? links_.receive(position) : micro.batch.tokens.share();
    if (recomputes) part.input = x.share();
    Tensor y = through_layers(a, part, std::move(x));
    hold(a, part, recomputes);
    links_.send(position, std::move(y));
    if (!micro.pass.training) parts_.erase({a.micro_batch, a.chunk});
  }

  // What forward has saved is counted; what does not fit is given up.
  void hold(const Action& a, Part& part, bool recomputes) {
    if (!part.kept) return;
    part.bytes = bytes_of(part.saved);
    if (recomputes && !kept_.keep(part.bytes)) {
      part.kept = false;
      part.bytes = 0;
      part.saved = new_saved(layers(a).count() + 1, false);
      return;
    }
    count(part.bytes);
  }
  void count(std::int64_t bytes) {
    saved_bytes_ += bytes;
    of_.most_saved_bytes_ = std::max(of_.most_saved_bytes_, saved_bytes_);
  }

  void remake(const Action& a, Part& part) {
    part.saved = new_saved(layers(a).count() + 1, true);
    part.pass.recompute = true;
    through_layers(a, part, part.input.share());
    part.pass.recompute = false;
    count(part.bytes = bytes_of(part.saved));
  }

  void backward(std::size_t position, const Action& a) {
    Part& part = parts_.at({a.micro_batch, a.chunk});
    if (of_.versions_) of_.versions_->use_for_backward(a.micro_batch);
    Tensor dy = prepare_backward(
        of_.options_.again, part.kept, [&] { remake(a, part); },
        [&] { return links_.receives(position) ? links_.receive(position) : Tensor(); });
    if (is_last_stage(a)) dy = of_.model_.loss->backward(part.saved.back(), loss_factor_);
    if (handovers_.schedule().splits_backward) part.pass.deferred = &part.deferred;
    Tensor dx =
        backward_layers(of_.model_, layers(a), std::move(dy), part.saved, part.pass, hooks_);
    links_.send(position, std::move(dx));
    if (!handovers_.schedule().splits_backward) end(a, part);
  }

  void weight_gradient(const Action& a) {
    Part& part = parts_.at({a.micro_batch, a.chunk});
    part.deferred.run_all();
    end(a, part);
  }

  void end(const Action& a, const Part& part) {
    saved_bytes_ -= part.bytes;
    if (part.kept) kept_.give_back(part.bytes);
    parts_.erase({a.micro_batch, a.chunk});
    if (++ended_[a.micro_batch] == handovers_.schedule().chunks())
      micro_batches_[index(a.micro_batch)].reset();
    if (!of_.versions_) return;
    of_.most_versions_ = std::max(of_.most_versions_, of_.versions_->kept());
    of_.versions_->done(a.micro_batch);
  }

  PipelineRank& of_;
  const Handovers& handovers_;
  const std::vector<Action>& list_;
  const ReadMicroBatch& read_;
  const Hooks hooks_;
  double loss_factor_ = 1;
  std::vector<std::optional<MicroBatch>> micro_batches_;
  std::vector<double> losses_;
  KeptBytes kept_;
  std::int64_t saved_bytes_ = 0;
  std::map<std::pair<int, int>, Part> parts_;       // by micro-batch and chunk
  std::map<int, std::vector<int>> last_of_update_;  // by chunk: micro-batches
  std::map<int, int> ended_;                        // by micro-batch: chunks
  const StageLinks::InputShape shape_;
  StageLinks links_;
};

PipelineRank::PipelineRank(const Rank& rank, Communicator& pp, const Model& model,
                           Schedule schedule, PipelineOptions options)
    : rank_(rank),
      model_(model),
      options_(std::move(options)),
      handovers_(checked(std::move(schedule), pp, model)),
      self_(pp.rank()),
      comms_(pp) {}

bool PipelineRank::updates_on_its_way() const {
  const std::vector<Action>& list = schedule().actions[index(self_)];
  return std::count_if(list.begin(), list.end(), [](const Action& a) {
           return a.kind == ActionKind::Update;
         }) > schedule().chunks();
}

// Of a schedule with several updates, which have all as many micro-batches.
std::unique_ptr<WeightVersions> PipelineRank::make_versions() const {
  std::vector<Parameter*> parameters;
  for (const auto& layer : model_.layers)
    for (Parameter* p : layer->parameters()) parameters.push_back(p);
  const std::vector<Action>& list = schedule().actions[index(self_)];
  const auto first = std::find_if(list.begin(), list.end(),
                                  [](const Action& a) { return a.kind == ActionKind::Update; });
  return std::make_unique<WeightVersions>(
      rank_, std::move(parameters),
      WeightVersions::Options{.weights = options_.weights,
                              .stages = schedule().stages(),
                              .micro_batches = first->micro_batch + 1});
}

double PipelineRank::run(std::int64_t count, const ReadMicroBatch& read, double loss_factor,
                         Hooks hooks, const std::function<void()>& update) {
  if (count != schedule().micro_batches)
    fail(fmt::format("pipeline: {} micro-batches, {} has {}", count, schedule().name,
                     schedule().micro_batches));
  if (update && !versions_) versions_ = make_versions();
  if (versions_) versions_->begin_run();
  most_saved_bytes_ = 0;
  most_versions_ = 1;
  double loss = 0;
  for (const double each : Running(*this, handovers_, read, hooks).run(loss_factor, update))
    loss += each;
  return loss;
}

std::vector<double> PipelineRank::evaluate(std::span<const Batch> windows, Hooks hooks) {
  if (windows.empty()) return {};
  const Handovers handovers(forward_alone(schedule(), static_cast<int>(windows.size())));
  const ReadMicroBatch read = [&](std::int64_t m) {
    const Batch& window = windows[static_cast<std::size_t>(m)];
    return MicroBatch{{window.tokens.share(), window.targets.share()}, {.training = false}};
  };
  return Running(*this, handovers, read, hooks).run(0, {});
}

}  // namespace aisc
