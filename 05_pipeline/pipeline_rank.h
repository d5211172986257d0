// A rank of a pipeline: runs its list of a schedule on its stages of a model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "05_pipeline/handovers.h"
#include "05_pipeline/recomputation.h"
#include "05_pipeline/stage_links.h"
#include "05_pipeline/weight_versions.h"
#include "common/nn/driver.h"
#include "common/train/step_parts.h"

namespace aisc {

struct PipelineOptions {
  // Of what `stage`, which is not the first, takes of a micro-batch of such tokens (B, T): of a GPT
  // (B, T, C). Stages may differ.
  std::function<Shape(int stage, const Shape& tokens)> input_shape;
  DType dtype = DType::F32;  // of activations
  // Recomputation by micro-batches: a stage keeps its input alone, and runs its forward again.
  Again again = Again::Never;
  // Micro-batches that keep everything nevertheless, as long as all that is kept stays within so
  // many bytes on this rank.
  std::int64_t keep_bytes = 0;
  Weights weights = Weights::Stashed;  // of schedules that update more than once
};

class PipelineRank {
 public:
  // Ranks of `pp` in the schedule's order. The model's stages (Model::stages) are this rank's, one
  // a chunk; the loss is with the last stage. Collective. Throws Error with all problems() of the
  // schedule, and for another number of ranks or chunks. Model and rank live longer than this.
  PipelineRank(const Rank& rank, Communicator& pp, const Model& model, Schedule schedule,
               PipelineOptions options);

  // As a MicroBatchLoop, for as many micro-batches as the schedule has: the sum of their losses on
  // the rank of the last stage, 0 elsewhere. Gradients are those of loss_factor * (the sum of all),
  // on every stage its own; a table on two stages is summed by the caller.
  //
  // update() is called at each update of a schedule that has more than one a chunk; at others the
  // caller updates, once all ranks are here. With update() the gradients are those since the one
  // before. Collective.
  double run(std::int64_t count, const ReadMicroBatch& read, double loss_factor, Hooks hooks,
             const std::function<void()>& update = {});

  // The sum of losses of each of these windows, forward alone: on the last stage, 0 elsewhere.
  std::vector<double> evaluate(std::span<const Batch> windows, Hooks hooks);

  const Schedule& schedule() const { return handovers_.schedule(); }
  bool updates_on_its_way() const;
  // Of the last run: the most that Saved held at once on this rank, and the most versions of its
  // weights.
  std::int64_t most_saved_bytes() const { return most_saved_bytes_; }
  int most_versions() const { return most_versions_; }

 private:
  class Running;  // one run
  std::unique_ptr<WeightVersions> make_versions() const;

  const Rank rank_;
  const Model& model_;
  const PipelineOptions options_;
  const Handovers handovers_;
  const int self_;
  StageComms comms_;
  std::unique_ptr<WeightVersions> versions_;  // made at the first run that updates
  std::int64_t most_saved_bytes_ = 0;
  int most_versions_ = 1;
};

}  // namespace aisc
