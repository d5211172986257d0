// A rank of a pipeline: runs its list of a schedule on its stages of a model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "05_pipeline/pipeline_run.h"

namespace aisc {

class PipelineRank {
 public:
  // Ranks of `pp` in the schedule's order. The model's stages (Model::stages) are this rank's, one
  // a chunk; the loss is with the last stage. Collective. Throws Error with all problems() of the
  // schedule, and for another number of ranks or chunks; and for several copies of the model, as
  // dual_pipe() has them: it can be checked and simulated alone. Model and rank live longer than
  // this.
  PipelineRank(const Rank& rank, Communicator& pp, const Model& model, Schedule schedule,
               PipelineOptions options);

  // As a MicroBatchLoop, for as many micro-batches as the schedule has: the sum of their losses on
  // the rank of the last stage, 0 elsewhere. Gradients are those of loss_factor * (the sum of all),
  // on every stage its own; a table on two stages is summed by the caller.
  //
  // update() is called at each update of the schedule, with the gradients since the one before, and
  // weights have versions (WeightVersions). Without it the caller updates, once all ranks are here.
  // Collective. Throws Error for another count, and for update() with more than one chunk.
  double run(std::int64_t count, const ReadMicroBatch& read, double loss_factor, Hooks hooks,
             const std::function<void()>& update = {});

  // The sum of losses of each of these windows, forward alone: on the last stage, 0 elsewhere.
  std::vector<double> evaluate(std::span<const Batch> windows, Hooks hooks,
                               const Pass& pass = {.training = false});

  // One pass of a text through all stages, one after the other, as Stages::forward_cached.
  // Collective. Sent: b s h elements from a stage to the next, of a token that follows b h.
  Tensor forward_cached(const Tensor& tokens, KeyValueCache& cache, Hooks hooks);

  const Schedule& schedule() const { return handovers_.schedule(); }
  bool updates_on_its_way() const;  // more than once a chunk
  // Of the last run: the most that Saved held at once on this rank, and the most versions of its
  // weights.
  std::int64_t most_saved_bytes() const { return last_run_.most_saved_bytes; }
  int most_versions() const { return last_run_.most_versions; }

 private:
  std::unique_ptr<WeightVersions> make_versions() const;

  const Rank rank_;
  const Model& model_;
  const PipelineOptions options_;
  const Handovers handovers_;
  const int self_;
  StageComms comms_;
  std::unique_ptr<WeightVersions> versions_;  // made at the first run that updates
  PipelineRunReport last_run_;
};

}  // namespace aisc
