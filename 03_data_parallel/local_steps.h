// Local steps: each rank goes its own way for some steps, then all meet in the middle (Stich,
// "Local SGD converges fast and communicates little", 2019).
#pragma once

#include "common/train/step_parts.h"

namespace aisc {

struct LocalOptions {
  std::int64_t average_every = 1;  // steps
  std::int64_t samples = 0;        // of a batch, and this rank's share of them
  std::int64_t own_samples = 0;
};

// In every step a rank updates from its own samples alone; after every average_every-th the ranks'
// weights, their masters and the optimizer's state become the mean of all ranks', weighted by
// samples. So after an averaging all ranks agree in everything, and a checkpoint of one is whole.
//
// With one rank it is the plain step. With more and SGD without momentum, average_every 1 is the
// plain step, too, up to rounding; AdamW divides by the root of a square, which is not linear, so
// there it is not.
class LocalSteps final : public Reducer {
 public:
  // Throws Error for average_every < 1, and for a share that is not in [1, samples].
  LocalSteps(const Rank& rank, ParameterStore& store, const LocalOptions& options);

  void finish() override;  // the gradients become the mean over this rank's samples
  // The root of the mean of the ranks' squared norms: 8 bytes a step.
  double norm(const MeshPlace& place) const override;
  void updated() override;

 private:
  void average(View x) const;

  const LocalOptions options_;
};

// For a Trainer, of batches of so many samples.
StepParts local_steps(std::int64_t average_every, std::int64_t batch);

// The largest distance of a rank's weight from the mean of all ranks'; weights (n). Collective.
double divergence(Communicator& ranks, ConstView weights);

}  // namespace aisc
