// A training run, on one rank or on many: parameters, an optimizer, and the step that moves them.
// With N ranks that each hold the whole model each takes its share of every batch, and the
// gradients are summed over the ranks before the update, which is then the same everywhere. With a
// pipeline each rank holds some stages of the model, with tensor parallelism a part of each layer,
// with experts some of them, and N are the ranks that hold the same.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/core/range.h"
#include "common/nn/kept_bytes.h"
#include "common/optim/schedule.h"
#include "common/train/step_parts.h"
#include "common/train/train_config.h"

namespace aisc {

struct StepReport {
  double loss;  // nats per term (token), mean over the global batch
  double learning_rate;
  double gradient_norm;  // before clipping
  // What layers added to the loss (a router's balance), likewise a mean over the tokens of the
  // global batch; not in `loss`. 0 without experts.
  double extra = 0;
  // Of routers: the share of choices that found no room; how busy the busiest expert of a sample
  // is, 1 where all are alike (ExtraLoss).
  double dropped = 0, busiest = 0;
  // Of a loss that was scaled (StepScale): by so much; true: the step was skipped, its norm is not
  // finite, and nothing moved. 1 and false elsewhere.
  double scale = 1;
  bool skipped = false;
};

class Trainer : private StepEnd {
 public:
  // Draws the parameters from config.seed, the same on all ranks of rank.world. Throws Error for
  // sizes that do not fit together or leave a rank without samples.
  Trainer(const Rank& rank, const TrainConfig& config, StepParts parts = {});

  // Goes on as a run that took `steps` steps with `samples` samples and `updates` of the weights (a
  // step may have several), once the weights of the optimizer's slices() and its state() hold what
  // they held then: every later step is bitwise the same, unless a pipeline keeps older weights
  // (2BW). Without `updates` each step had as many as it has now. Collective.
  void resume(std::int64_t steps, std::int64_t samples, std::optional<std::int64_t> updates = {});

  // Step number steps_taken(): forward and backward of every micro-batch, the sum over ranks,
  // clipping, one update. Collective; all ranks get the same report and bitwise the same weights,
  // those of a single rank up to rounding. Throws Error, with the weights untouched, if loss or
  // gradients are not finite; beside StepParts::scale such a step is skipped: its samples are
  // passed, and the learning rate of the next step is its own. Stages that update on their way do
  // so several times, each time with the mean over their part of the batch, and find what is not
  // finite afterwards; the norm is the last update's.
  StepReport step(const SampleSource& data);

  // Mean loss of all ranks' windows, without dropout, a batch at a time: the same however samples
  // are divided among windows and ranks, of which some may have none. Collective.
  double evaluate(std::span<const Batch> windows) const;

  std::int64_t steps_taken() const { return steps_; }
  std::int64_t samples_taken() const { return samples_; }
  const TrainConfig& config() const { return config_; }
  const Model& model() const { return model_; }
  // Of the parameters whose gradients are summed over data-parallel ranks alone: of all, where no
  // part of the model says otherwise (Parameter::sync).
  ParameterStore& parameters() { return *synced_.front().store; }
  const ParameterStore& parameters() const { return *synced_.front().store; }
  // Of all parameters: one for each Sync that occurs.
  std::vector<const ParameterStore*> stores() const;
  std::vector<Reducer::Groups> groups() const;  // of each of these stores, in their order
  const Optimizer& optimizer() const { return *optimizer_; }
  StepScale* scale() const { return scale_.get(); }  // null: the loss is not scaled
  const Reducer& reducer() const { return *synced_.front().reducer; }
  // Of the ranks that hold the same part of the model those that each have a share of every batch.
  const Communicator& data_ranks() const { return mesh_ ? mesh_->dp() : rank_.world; }
  // True: ranks hold parts of the model, shards, stages or parts of layers. Together those that
  // write theirs hold each of its elements once.
  bool divides() const { return mesh_ || reducer().divides(); }
  bool writes(const OptimizerSlice& slice) const;  // this rank, and no other that has the same
  // Null where every rank has whole layers of the whole model.
  Mesh* mesh() const { return mesh_.get(); }
  Stages* stages() const { return stages_.get(); }  // null: no pipeline
  // Those of the whole model on one rank: they make the same parameters, unsplit.
  GptParts whole_parts() const;
  const StepParts& parts() const { return parts_; }
  // What every pass over model() needs around its layers.
  Hooks hooks() const { return hooks_; }
  double flops_per_step() const;
  double tokens_per_step() const;  // that samples bring through the model
  // With what is computed a second time, where it is recomputed.
  double hardware_flops_per_step() const;

 private:
  // The parameters of one Sync: the ranks that sum their gradients, and how.
  struct Synced {
    Sync sync;
    Rank ranks;
    std::unique_ptr<ParameterStore> store;
    std::unique_ptr<Reducer> reducer;
  };
  GptParts parts_of_stages() const;
  Model make_model() const;
  bool has_experts() const { return config_.model.experts.count > 0; }
  Communicator& ranks_of(Sync sync) const;  // those that sum its gradients
  Synced make_synced(Sync sync) const;
  bool is_first_copy(const OptimizerSlice& slice) const;  // of shards that several groups have
  // Tensor ranks compute the same losses: one of them counts them.
  bool counts_losses() const { return !mesh_ || mesh_->place().tp == 0; }
  MicroBatch micro_batch(const SampleSource& data, std::int64_t m);
  TokenPart token_part(std::int64_t tokens) const;  // of a sequence of so many, this rank's
  Pass of_own_tokens(std::int64_t tokens) const;
  Batch own_tokens(Batch whole) const;
  double run_micro_batches(const SampleSource& data);
  void update_on_the_way();
  void begin_gradients();
  void finish_step();
  MeshPlace counting_place() const;
  void wait_for_loss();
  void sum_over_tensor_ranks() override {}  // with those over data ranks (Synced)
  void sum_over_data_ranks() override;
  void sum_tied_tables() override;
  double own_square() override;
  double sum_over_world(double own) override;
  void require_finite(double norm) override;
  void update(double gradient_scale) override;
  void gather_weights() override;
  std::vector<double> losses_of(std::span<const Batch> windows) const;
  Batch blank_window() const;  // of a rank that has none, where all take the same passes
  int updates_per_step() const { return stages_ ? std::max(1, stages_->updates()) : 1; }
  std::int64_t missing_passes(std::size_t own) const;

  Rank rank_;
  TrainConfig config_;
  StepParts parts_;
  std::unique_ptr<Mesh> mesh_;  // null: the ranks are data-parallel alone
  Rank data_;                   // among those that hold the same part of the model
  std::unique_ptr<KeptBytes> kept_;
  std::unique_ptr<Stages> stages_;
  Model model_;
  std::vector<Synced> synced_;  // Sync::Data first
  RateSchedule schedule_;
  std::unique_ptr<BatchReader> reader_;  // null: the plain one
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<StepScale> scale_;
  std::vector<std::unique_ptr<UpdateHook>> update_hooks_;
  std::vector<std::unique_ptr<LayerHook>> more_hooks_;
  std::vector<LayerHook*> hooks_;
  std::int64_t steps_ = 0, samples_ = 0;
  // Of the step under way.
  CpuDevice host_;
  StepReport report_{};
  ExtraLoss extra_;
  double terms_ = 0;                // SampleSource::terms of the global batch
  std::array<double, 6> losses_{};  // report_.loss and of ExtraLoss, this rank's, then
  Work loss_sum_;                   // of all ranks
  int updates_on_the_way_ = 0;
  double last_square_ = 0;  // own_square() of the last of them
};

}  // namespace aisc
