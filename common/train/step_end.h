// The end of a step: what comes after what behind the last micro-batch.
#pragma once

#include <functional>
#include <span>

#include "common/comm/mesh.h"
#include "common/nn/parameter.h"
#include "common/optim/optimizer.h"

namespace aisc {

// True on exactly one of the ranks that have the same elements of this parameter: the first of its
// tensor ranks where it is not split, the first of its data-parallel ranks (of experts: the first
// expert_dp) where these have no shards of it (`sharded`), the first stage of a table that two
// stages have. cp is 1.
bool counts(const Parameter& parameter, bool sharded, const MeshPlace& place);

// One rank's part of the end. Each is collective, in the same order on all ranks, but for
// own_square() and update(), which no other rank sees.
class StepEnd {
 public:
  virtual ~StepEnd() = default;
  // Gradients of what tensor ranks have whole but see a part of, where this is a sum of its own.
  virtual void sum_over_tensor_ranks() = 0;
  // Of all data-parallel ranks, into each rank's shard where there are shards: what is summed over
  // tensor ranks afterwards is in no shard.
  virtual void sum_over_data_ranks() = 0;
  // Of the two stages that have the tied table; elsewhere nothing. It adds up what the
  // data-parallel ranks' sums are: the shard, where there are shards.
  virtual void sum_tied_tables() = 0;
  // The sum of squares of the gradients that this rank counts; and the sum of that over the world.
  virtual double own_square() = 0;
  virtual double sum_over_world(double own) = 0;
  // Throws Error, which says that no weight has moved, for a norm that is not finite. Of a number
  // that all ranks have: who throws by what it alone knows leaves the others waiting.
  virtual void require_finite(double norm) = 0;
  // One step of the optimizer with gradients times `gradient_scale`.
  virtual void update(double gradient_scale) = 0;
  // Of shards: whole weights on every rank.
  virtual void gather_weights() = 0;
};

// Takes a step's end in its order and clips to `clip` by clip_factor() (0: nothing is clipped).
// Returns the norm before clipping.
using FinishStep = std::function<double(StepEnd& end, double clip)>;
// The plain one, of models of which no tensor rank sees a part of a gradient. Throws as
// StepEnd::require_finite and clip_factor do.
double finish_in_order(StepEnd& end, double clip);

// The sum of squares of the slices' gradients that count at this place.
using OwnSquare = std::function<double(std::span<const OptimizerSlice> slices, bool sharded,
                                       const MeshPlace& place)>;

}  // namespace aisc
