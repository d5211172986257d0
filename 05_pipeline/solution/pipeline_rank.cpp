#include "05_pipeline/pipeline_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "05_pipeline/check.h"
#include "common/core/error.h"

namespace aisc {
namespace {

Schedule checked(Schedule schedule, const Communicator& pp, const Model& model) {
  std::string all;
  for (const std::string& problem : problems(schedule)) all += "\n  " + problem;
  if (!all.empty()) fail(fmt::format("pipeline: {} cannot be executed:{}", schedule.name, all));
  if (schedule.copies > 1)
    fail(fmt::format("pipeline: {} is of {} copies of the model, and ranks execute one",
                     schedule.name, schedule.copies));
  if (schedule.ranks() != pp.size())
    fail(fmt::format("pipeline: {} is of {} ranks, {} has {}", schedule.name, schedule.ranks(),
                     pp.name(), pp.size()));
  if (model.stages.size() != index(schedule.chunks()))
    fail(fmt::format("pipeline: the model has {} stages on rank {}, {} has {}", model.stages.size(),
                     pp.rank(), schedule.name, schedule.chunks()));
  return schedule;
}

constexpr int kWindowsAtOnce = 8;  // of an evaluation, for each rank

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
  if (update && schedule().chunks() > 1)
    fail(fmt::format("pipeline: {} has {} chunks a rank, and updates on the way are of one",
                     schedule().name, schedule().chunks()));
  if (update && !versions_) versions_ = make_versions();
  if (update) versions_->begin_run();
  PipelineRun run(rank_, model_, comms_, handovers_, options_, update ? versions_.get() : nullptr,
                  read, hooks);
  last_run_ = run.run(loss_factor, update);
  return std::accumulate(last_run_.losses.begin(), last_run_.losses.end(), 0.0);
}

std::vector<double> PipelineRank::evaluate(std::span<const Batch> windows, Hooks hooks,
                                           const Pass& pass) {
  // The first stage does not wait for the others' losses: what it has sent, and nobody has received
  // yet, would pile up. So some pass at a time.
  const std::size_t at_once = index(kWindowsAtOnce * schedule().ranks());
  std::vector<double> losses;
  for (std::size_t begin = 0; begin < windows.size(); begin += at_once) {
    const std::size_t count = std::min(at_once, windows.size() - begin);
    const Handovers handovers(forward_alone(schedule(), static_cast<int>(count)));
    const ReadMicroBatch read = [&](std::int64_t m) {
      return micro_batch_of(windows[begin + static_cast<std::size_t>(m)].share(), pass);
    };
    PipelineRun run(rank_, model_, comms_, handovers, options_, nullptr, read, hooks);
    const std::vector<double> some = run.run(0, {}).losses;
    losses.insert(losses.end(), some.begin(), some.end());
  }
  return losses;
}

// Nothing is under way beside it, so that each message is waited for at once.
Tensor PipelineRank::forward_cached(const Tensor& tokens, KeyValueCache& cache, Hooks hooks) {
  const std::vector<StagePlace> places = stage_places(schedule());
  Communicator& links = *comms_.forward;
  Tensor x;
  // Stage by stage, each rank where it has one: x is there before its stage, and goes to the rank
  // of the next.
  for (std::size_t s = 0; s < places.size(); ++s) {
    if (places[s].rank != self_) continue;
    if (s == 0) x = tokens.share();
    if (s > 0 && places[s - 1].rank != self_) {
      x = Tensor(options_.input_shape(static_cast<int>(s), tokens.shape()), options_.dtype,
                 rank_.device);
      const auto span = rank_.trace.span("communication", "wait for a stage");
      links.recv(x, places[s - 1].rank).wait();  // comm: b s h elements
    }
    x = aisc::forward_cached(model_, model_.stages[index(places[s].chunk)], std::move(x), cache,
                             hooks);
    if (s + 1 == places.size() || places[s + 1].rank == self_) continue;
    links.send(x, places[s + 1].rank).wait();  // comm: b s h elements
    x = {};
  }
  cache.advance(tokens.shape()[-1]);
  return x;
}

}  // namespace aisc
