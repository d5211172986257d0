// One run of a rank's list: what is under way on its stages, from a forward to the last action of
// the same micro-batch.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "05_pipeline/handovers.h"
#include "05_pipeline/recomputation.h"
#include "05_pipeline/stage_links.h"
#include "05_pipeline/weight_versions.h"
#include "common/nn/driver.h"
#include "common/nn/kept_bytes.h"
#include "common/train/step_parts.h"

namespace aisc {

struct PipelineOptions {
  // Of what `stage`, which is not the first, takes of a micro-batch of such tokens (B, T): of a GPT
  // (B, T, C). Stages may differ.
  std::function<Shape(int stage, const Shape& tokens)> input_shape;
  DType dtype = DType::F32;  // of activations
  LinkCodes codes = {};      // of what stages send each other, but for texts that are generated
  // Recomputation by micro-batches: a stage keeps its input alone, and runs its forward again.
  Again again = Again::Never;
  // Micro-batches that keep everything nevertheless, as long as all that is kept stays within so
  // many bytes on this rank.
  std::int64_t keep_bytes = 0;
  Weights weights = Weights::Stashed;  // of runs that update on their way
};

// What a run has found, on one rank.
struct PipelineRunReport {
  std::vector<double> losses;         // of each micro-batch; 0 where the last stage is not
  std::int64_t most_saved_bytes = 0;  // that Saved held at once
  int most_versions = 1;              // of the weights
};

class PipelineRun {
 public:
  // Of a schedule that can be executed; the model's stages are the rank's chunks. versions: null
  // where the caller updates. All live longer than this.
  PipelineRun(const Rank& rank, const Model& model, StageComms& comms, const Handovers& handovers,
              const PipelineOptions& options, WeightVersions* versions, const ReadMicroBatch& read,
              Hooks hooks);

  // update: called at each update, if there are versions.
  PipelineRunReport run(double loss_factor, const std::function<void()>& update);

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

  const Schedule& schedule() const { return handovers_.schedule(); }
  const MicroBatch& micro_batch(int m);
  bool is_last_stage(const Action& a) const;
  const LayerRange& layers(const Action& a) const;

  void forward(std::size_t position, const Action& a);
  void backward(std::size_t position, const Action& a);
  void weight_gradient(const Action& a);
  // Its loss counts once: a forward that is repeated leaves it.
  Tensor through_layers(const Action& a, Part& part, Tensor x);
  void hold(const Action& a, Part& part);  // what forward has saved, or gives it up
  void remake(const Action& a, Part& part);
  void count(std::int64_t saved_bytes);
  void end(const Action& a, const Part& part);

  const Rank rank_;
  const Model& model_;
  const Handovers& handovers_;
  const PipelineOptions& options_;
  WeightVersions* const versions_;
  const ReadMicroBatch& read_;
  const Hooks hooks_;
  const int self_;
  const std::vector<Action>& list_;
  const std::set<std::pair<int, int>> completing_;  // by micro-batch and chunk
  double loss_factor_ = 1;
  std::vector<std::optional<MicroBatch>> micro_batches_;
  std::map<std::pair<int, int>, Part> parts_;  // by micro-batch and chunk
  std::map<int, int> ended_;                   // by micro-batch: chunks
  KeptBytes kept_;
  std::int64_t saved_bytes_ = 0;
  PipelineRunReport report_;
  const StageLinks::InputShape shape_;
  StageLinks links_;
};

}  // namespace aisc
