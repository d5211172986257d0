// Stages that take known seconds of virtual time, keep known bytes and compute nothing: what a run
// of a schedule costs, without a model.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "05_pipeline/pipeline_rank.h"
#include "05_pipeline/simulate.h"
#include "common/comm/launch.h"
#include "common/nn/model.h"
#include "common/nn/parameter_store.h"
#include "tests/support/forward_call.h"

namespace aisc::toy_pipeline {

// What passes a boundary between stages: b samples of s tokens of width h, in F32. Powers of two,
// so that seconds are exact.
inline constexpr std::int64_t kSamples = 2, kTokens = 8, kWidth = 4;
inline constexpr std::int64_t kBoundaryBytes = kSamples * kTokens * kWidth * 4;
// What a stage keeps of a micro-batch: as much.
inline constexpr std::int64_t kUnitBytes = kBoundaryBytes;
// Its weights, F32.
inline constexpr std::int64_t kWeights = 16;

// When a rank was at work.
struct RankWork {
  double first_seconds = -1, last_seconds = 0;  // begin of its first action, end of its last
  double busy_seconds = 0;
  double repeated_seconds = 0;  // of these, forwards that ran again

  void spend(Clock& clock, double seconds, bool repeats = false) {
    if (first_seconds < 0) first_seconds = clock.now();
    clock.advance(seconds);
    last_seconds = clock.now();
    busy_seconds += seconds;
    if (repeats) repeated_seconds += seconds;
  }
};

// Any tensor in, (b, s, h) out, which it keeps. Its weights are there to be counted.
class ToyStage final : public Layer {
 public:
  // `costs` and `work` live longer.
  ToyStage(const Rank& rank, const std::string& name, const ActionCosts& costs, RankWork& work)
      : Layer(rank, name),
        costs_(costs),
        work_(work),
        weight_(whole_parameter(name + ".weight", {kWeights}, Init::constant(0), true)) {}

  Tensor forward(Tensor /*x*/, Saved& saved, const Pass& pass) const override {
    Tensor y = Tensor::zeros({kSamples, kTokens, kWidth}, DType::F32, rank_.device);  // (b, s, h)
    work_.spend(rank_.clock, costs_.forward, pass.recompute);
    saved.push(y.share());
    return y;
  }
  Tensor backward(Tensor /*dy*/, Saved& saved, const Pass& pass) override {
    work_.spend(rank_.clock, costs_.backward);
    const auto weight_gradient = [this] { work_.spend(rank_.clock, costs_.weight_gradient); };
    pass.deferred ? pass.deferred->push(weight_gradient) : weight_gradient();
    return saved.pop();  // (b, s, h)
  }
  std::vector<Parameter*> parameters() override { return {&weight_}; }

 private:
  const ActionCosts& costs_;
  RankWork& work_;
  Parameter weight_;
};

// One nat a micro-batch; keeps what the last stage keeps already.
class ToyLoss final : public Loss {
 public:
  double forward(Tensor x, const Tensor& /*targets*/, Saved& saved) const override {
    saved.push(std::move(x));
    return 1;
  }
  Tensor backward(Saved& saved, double /*factor*/) const override { return saved.pop(); }
};

// What the communicators of each name have sent, by rank.
class Counts {
 public:
  void add(const std::string& name, int rank, const CommStats& stats) {
    const std::lock_guard lock(mutex_);
    by_name_[name].resize(std::max<std::size_t>(by_name_[name].size(), index(rank) + 1));
    by_name_[name][index(rank)] = stats;
  }
  bool has(const std::string& name) const { return by_name_.contains(name); }
  // Of rank `rank` of the communicators of that name.
  CommStats of(const std::string& name, int rank) const { return by_name_.at(name)[index(rank)]; }

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<CommStats>> by_name_;
};

// Tells what it has sent when it ends.
class CountedComm final : public Communicator {
 public:
  CountedComm(std::unique_ptr<Communicator> inner, Counts& counts)
      : Communicator(inner->rank(), inner->size(), inner->name(), Reach::HostAndGpu),
        inner_(std::move(inner)),
        counts_(counts) {}
  ~CountedComm() override { counts_.add(name(), rank(), stats()); }

 private:
  Work do_exchange(const Call& call, std::span<const Transfer> transfers) override {
    return forward(*inner_, call, transfers);
  }
  Work do_collective(Collective collective) override { return forward(*inner_, collective); }
  Work do_plan(Collective collective, Plan plan) override {
    return forward(*inner_, collective, &plan);
  }
  std::unique_ptr<Communicator> do_split(int color, int key, std::string name) override {
    return std::make_unique<CountedComm>(inner_->split(color, key, std::move(name)), counts_);
  }

  const std::unique_ptr<Communicator> inner_;
  Counts& counts_;
};

struct RunOptions {
  ActionCosts costs = {1, 1, 1, 0};  // of a stage; updates only where they are on the run's way
  Link link = {};
  Again again = Again::Never;
  std::int64_t keep_bytes = 0;
  Weights weights = Weights::Stashed;
  std::function<LayerHook*(const Rank& rank)> hook = {};  // if there is one: what sees its layers
};

struct Outcome {
  double total_seconds = 0;
  double loss = 0;
  std::vector<RankWork> work = {};  // these by rank
  std::vector<std::int64_t> most_saved_bytes = {};
  std::vector<int> most_versions = {};
  std::vector<double> weight_copies = {};  // by the ledger: the most, in weights of the rank
  std::vector<CommStats> forward = {}, backward = {};

  // Idle seconds of all ranks over their busy ones, and over all.
  double bubble_of_ideal() const { return idle() / busy(); }
  double bubble_of_total() const { return idle() / (idle() + busy()); }
  // The most that a rank idles between its first action and its last.
  double bubble_seconds() const {
    double most = 0;
    for (const RankWork& w : work)
      most = std::max(most, w.last_seconds - w.first_seconds - w.busy_seconds);
    return most;
  }
  double busy() const {
    double sum = 0;
    for (const RankWork& w : work) sum += w.busy_seconds;
    return sum;
  }
  double idle() const { return static_cast<double>(work.size()) * total_seconds - busy(); }
};

// One run of the schedule by PipelineRank, in virtual time.
inline Outcome run(const Schedule& schedule, const RunOptions& options = {}) {
  const auto ranks = static_cast<std::size_t>(schedule.ranks());
  Outcome all{.work = std::vector<RankWork>(ranks),
              .most_saved_bytes = std::vector<std::int64_t>(ranks),
              .most_versions = std::vector<int>(ranks),
              .weight_copies = std::vector<double>(ranks)};
  std::vector<double> ends(ranks), losses(ranks);
  Counts counts;
  LaunchOptions launch_options{.ranks = schedule.ranks(), .network = Network{.link = options.link}};
  launch_options.internals.decorate = [&](std::unique_ptr<Communicator> world) {
    return std::make_unique<CountedComm>(std::move(world), counts);
  };
  launch(launch_options, [&](const Rank& rank) {
    const auto self = static_cast<std::size_t>(rank.world.rank());
    RankWork& work = all.work[self];
    Model model;
    for (std::size_t c = 0; c < static_cast<std::size_t>(schedule.chunks()); ++c) {
      model.layers.push_back(
          std::make_unique<ToyStage>(rank, "stage" + std::to_string(c), options.costs, work));
      model.stages.push_back({c, c + 1});
      if (schedule.stage_of[self][c] == schedule.stages() - 1)
        model.loss = std::make_unique<ToyLoss>();
    }
    const ParameterStore store(rank.device, make_units(model), {.gradients = false});
    const Usage weights = rank.device.ledger()[Purpose::Parameters];
    const Shape boundary{kSamples, kTokens, kWidth};
    PipelineRank pipeline(rank, rank.world, model, schedule,
                          {.input_shape = [&](int, const Shape&) { return boundary; },
                           .again = options.again,
                           .keep_bytes = options.keep_bytes,
                           .weights = options.weights});
    const ReadMicroBatch read = [&](std::int64_t m) {
      const auto tokens = [&] {
        return Tensor::zeros({kSamples, kTokens}, DType::I32, rank.device, Purpose::Workspace);
      };
      return MicroBatch{{tokens(), tokens()}, {.micro_batch = static_cast<int>(m)}};
    };
    std::function<void()> update;
    if (pipeline.updates_on_its_way())
      update = [&] { work.spend(rank.clock, options.costs.update); };
    std::vector<LayerHook*> hooks;
    if (options.hook) hooks = {options.hook(rank)};
    losses[self] = pipeline.run(schedule.micro_batches, read, 1, hooks, update);
    ends[self] = rank.clock.now();
    all.most_saved_bytes[self] = pipeline.most_saved_bytes();
    all.most_versions[self] = pipeline.most_versions();
    const std::int64_t copies =
        rank.device.ledger()[Purpose::Parameters].peak_bytes - weights.live_bytes;
    all.weight_copies[self] = static_cast<double>(copies) / (4. * kWeights * schedule.chunks());
  });
  all.total_seconds = *std::max_element(ends.begin(), ends.end());
  for (const double loss : losses) all.loss += loss;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    all.forward.push_back(counts.of("pp forward", rank));
    all.backward.push_back(counts.of("pp backward", rank));
  }
  return all;
}

}  // namespace aisc::toy_pipeline
