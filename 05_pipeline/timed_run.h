// Ranks that run a schedule in virtual time, on stages that take known seconds, keep known bytes
// and compute nothing: what a run costs, without a model.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "05_pipeline/pipeline_rank.h"
#include "05_pipeline/simulate.h"
#include "common/comm/launch.h"
#include "common/nn/parameter_store.h"

namespace aisc::timed {

// What passes a boundary between stages: b samples of s tokens of width h, in F32. Powers of two,
// so that seconds are exact. A stage keeps as much of a micro-batch.
inline constexpr std::int64_t kSamples = 2, kTokens = 8, kWidth = 4;
inline constexpr std::int64_t kBoundaryBytes = kSamples * kTokens * kWidth * 4;

struct Options {
  ActionCosts costs = {1, 1, 1, 0};  // of a stage; updates only where they are on the run's way
  Link link = {};
  Again again = Again::Never;
  double keep_units = 0;  // PipelineOptions::keep_bytes, in kBoundaryBytes
  Weights weights = Weights::Stashed;
  std::function<LayerHook*(const Rank& rank)> hook = {};  // if there is one: what sees its layers
  LaunchOptions::Internals internals = {};
};

// What a rank has done, and the most that it held.
struct RankRun {
  double first_seconds = -1, last_seconds = 0;  // begin of its first action, end of its last
  double busy_seconds = 0;
  double repeated_seconds = 0;  // of these, forwards that ran again
  double units = 0;             // of kBoundaryBytes: micro-batches kept on a stage
  int most_versions = 0;
  double weights_held = 0;  // by the ledger: its weights and copies of them, in its weights

  void spend(Clock& clock, double seconds, bool repeats = false) {
    if (first_seconds < 0) first_seconds = clock.now();
    clock.advance(seconds);
    last_seconds = clock.now();
    busy_seconds += seconds;
    if (repeats) repeated_seconds += seconds;
  }
};

struct Outcome {
  double total_seconds = 0;  // the longest rank's
  double loss = 0;           // one nat a micro-batch
  std::vector<RankRun> ranks;

  double busy() const {
    double sum = 0;
    for (const RankRun& rank : ranks) sum += rank.busy_seconds;
    return sum;
  }
  double idle() const { return static_cast<double>(ranks.size()) * total_seconds - busy(); }
  // Idle seconds of all ranks over their busy ones, and over all.
  double bubble_of_ideal() const { return idle() / busy(); }
  double bubble_of_total() const { return idle() / (idle() + busy()); }
};

// Any tensor in, (b, s, h) out, which it keeps. Its weights are there to be counted.
class Stage final : public Layer {
 public:
  // `costs` and `work` live longer.
  Stage(const Rank& rank, const std::string& name, const ActionCosts& costs, RankRun& work)
      : Layer(rank, name),
        costs_(costs),
        work_(work),
        weight_(whole_parameter(name + ".weight", {64}, Init::constant(0), true)) {}

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
  RankRun& work_;
  Parameter weight_;
};

// Keeps what the last stage keeps already.
class OneNat final : public Loss {
 public:
  double forward(Tensor x, const Tensor& /*targets*/, Saved& saved,
                 const Pass& /*pass*/) const override {
    saved.push(std::move(x));
    return 1;
  }
  Tensor backward(Saved& saved, double /*factor*/) const override { return saved.pop(); }
};

// One run of the schedule by PipelineRank, each rank a thread.
inline Outcome run(const Schedule& schedule, const Options& options = {}) {
  Outcome all{.ranks = std::vector<RankRun>(index(schedule.ranks()))};
  std::vector<double> ends(all.ranks.size()), losses(all.ranks.size());
  const LaunchOptions launched{.ranks = schedule.ranks(),
                               .network = Network{.link = options.link},
                               .internals = options.internals};
  launch(launched, [&](const Rank& rank) {
    const std::size_t self = index(rank.world.rank());
    RankRun& own = all.ranks[self];
    Model model;
    for (std::size_t c = 0; c < index(schedule.chunks()); ++c) {
      model.layers.push_back(
          std::make_unique<Stage>(rank, "stage" + std::to_string(c), options.costs, own));
      model.stages.push_back({c, c + 1});
      if (schedule.stage_of[self][c] == schedule.stages() - 1)
        model.loss = std::make_unique<OneNat>();
    }
    const ParameterStore store(rank.device, make_units(model), {.gradients = false});
    const Shape boundary{kSamples, kTokens, kWidth};
    PipelineRank pipeline(
        rank, rank.world, model, schedule,
        {.input_shape = [&](int, const Shape&) { return boundary; },
         .again = options.again,
         .keep_bytes = static_cast<std::int64_t>(options.keep_units * kBoundaryBytes),
         .weights = options.weights});
    const ReadMicroBatch read = [&](std::int64_t m) {
      const auto tokens = [&] {
        return Tensor::zeros({kSamples, kTokens}, DType::I32, rank.device, Purpose::Workspace);
      };
      return MicroBatch{{tokens(), tokens()}, {.micro_batch = static_cast<int>(m)}};
    };
    std::function<void()> update;
    if (pipeline.updates_on_its_way())
      update = [&] { own.spend(rank.clock, options.costs.update); };
    std::vector<LayerHook*> hooks;
    if (options.hook) hooks = {options.hook(rank)};
    losses[self] = pipeline.run(schedule.micro_batches, read, 1, hooks, update);
    ends[self] = rank.clock.now();
    own.units = static_cast<double>(pipeline.most_saved_bytes()) / kBoundaryBytes;
    own.most_versions = pipeline.most_versions();
    own.weights_held = static_cast<double>(rank.device.ledger()[Purpose::Parameters].peak_bytes) /
                       static_cast<double>(store.values().bytes());
  });
  all.total_seconds = *std::max_element(ends.begin(), ends.end());
  for (const double loss : losses) all.loss += loss;
  return all;
}

}  // namespace aisc::timed
