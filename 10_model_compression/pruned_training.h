// Training of a model of which more and more weights are gone.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "10_model_compression/prune.h"
#include "common/train/step_parts.h"

namespace aisc {

// Behind each update the weights that are gone are 0 again, whatever gradient and momentum made of
// them; in steps where the schedule has a round, more go: of each matrix (can_be_pruned) those of
// the smallest magnitudes, to the same share. Magnitudes are those of the F32 masters of weights in
// a short type.
//
// What is gone is what is exactly 0: nothing else has to be saved. A run that goes on behind a
// round finds what is gone in its weights; where that is less than the schedule says, as of a run
// that began dense, the first step makes up for it. So does the next step that is taken for a round
// in one that was skipped.
//
// Ranks that have parts of a matrix, shards or parts of layers, add up counts of magnitudes
// (ThresholdSearch), in rounds alone: 8 * 256 bytes for each matrix of the stage and each of four
// digits. Every rank counts all that it has; what several ranks have counts several times, and the
// wanted number as well, so that the threshold is the whole matrix's in any layout.
class PrunedTraining final : public UpdateHook {
 public:
  // `mesh` null: all ranks of rank.world share this model. Throws as PruneSchedule::validate().
  PrunedTraining(const Rank& rank, const Model& model, Mesh* mesh, const PruneSchedule& schedule);

  // On a device without numbers nothing happens.
  void before(Optimizer& optimizer, std::int64_t step) override;
  // Throws Error, in a round, where the ranks together have a part of a matrix more often than
  // others.
  void after(Optimizer& optimizer, std::int64_t step) override;

 private:
  struct Matrix {
    std::string name;
    std::int64_t count;  // of all ranks' parts
  };
  struct Part {  // a slice of the optimizer that is pruned
    std::size_t slice, matrix;
    std::vector<std::uint8_t> kept;
  };
  void find_parts(const Optimizer& optimizer);
  void find_gone(const Optimizer& optimizer, std::int64_t step);
  void mask(const Optimizer& optimizer) const;
  void prune(const Optimizer& optimizer, double sparsity);
  static std::int64_t wanted(const Matrix& matrix, std::span<const std::int64_t> counts,
                             double sparsity);
  void sum_over_ranks(std::vector<std::int64_t>& counts) const;

  const Rank rank_;
  Mesh* const mesh_;
  const PruneSchedule schedule_;
  std::vector<Matrix> matrices_;  // the same on all ranks that share them
  std::unordered_map<std::string, std::size_t> by_name_;
  std::vector<Part> parts_;
  std::int64_t last_step_ = -1;  // that was seen
  double reached_ = 0;           // the share that is gone
};

// Adds such a hook to StepParts::update_hooks. Throws as PruneSchedule::validate().
StepParts pruned(StepParts parts, const PruneSchedule& schedule);

// The weights of matrices that can be pruned, and how many of them are 0.
struct PrunedWeights {
  std::int64_t zeros = 0, all = 0;
};
// Of these slices, on this rank.
PrunedWeights pruned_weights(const std::vector<OptimizerSlice>& slices);

}  // namespace aisc
