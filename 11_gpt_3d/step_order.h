// The end of a step on a mesh: what comes after what behind the last micro-batch.
#pragma once

namespace aisc {

// One rank's part of it. Each is collective, in the same order on all ranks, but for own_square()
// and update(), which no other rank sees.
class StepEnd {
 public:
  virtual ~StepEnd() = default;
  // Gradients of what tensor ranks have whole but see a part of.
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
  // One step of the optimizer with gradients times `gradient_scale`.
  virtual void update(double gradient_scale) = 0;
  // Of shards: whole weights on every rank.
  virtual void gather_weights() = 0;
};

// Sums, norm, clipping to `clip` by clip_factor() (0: none), update; returns the norm before
// clipping. By hand: own squares of 9 and 16 on two ranks are a norm of 5 on both; with clip 1 both
// update with gradients times 1/5. Throws Error on every rank, with all weights as they were, where
// the norm is not finite.
double finish_step(StepEnd& step, double clip);

}  // namespace aisc
