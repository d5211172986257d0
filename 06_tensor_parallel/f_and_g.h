// f and g: where the activations of a tensor-parallel layer are summed over ranks. Each is the
// other's backward (Shoeybi et al., Megatron-LM, arXiv 1909.08053, section 3, figure 3).
//
//                 every rank: its columns of A       every rank: its rows of B
//   x  ->  f  ->  GELU(x A_r)                   ->   (...) B_r                    ->  g  ->  y
//
//         forward                                backward
//   f     nothing: all ranks have the same x     sums dx: each rank has its columns' share
//   g     sums y: each rank has its rows' share  nothing: all ranks have the same dy
#pragma once

#include <string>
#include <utility>

#include "06_tensor_parallel/linear_products.h"

namespace aisc {

enum class Conjugate { F, G };
enum class Direction { Forward, Backward };

// On its way through f or g.
struct Passing {
  Tensor x;
  Work sum = {};  // while it is under way x is not to be touched; empty: nothing is summed
};

// x as f or g returns it in a direction: x itself, or the sum of all ranks' x, the same on each of
// them. The sum is written into x if nobody else holds it, into a copy otherwise. It has begun when
// this returns: what does not need it can be computed beside it.
// Steps: 2(t-1). Bytes sent per rank: 2(t-1)/t of x.
Passing begin_through(Conjugate which, Direction direction, Communicator& tp, Tensor x);

// x behind it. Waits for the sum; the trace has how long, under `name`.
Tensor wait_for(const Rank& rank, Passing passing, const std::string& name);

// Both. Blocks.
Tensor through(Conjugate which, Direction direction, Communicator& tp, Tensor x);

// As a layer, of any shape. It has no parameters and keeps nothing. tp must outlive it.
class ConjugateLayer final : public Layer {
 public:
  ConjugateLayer(const Rank& rank, Communicator& tp, std::string name, Conjugate which)
      : Layer(rank, std::move(name)), tp_(tp), which_(which) {}

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;

 private:
  Tensor traced(Direction direction, Tensor x) const;

  Communicator& tp_;
  Conjugate which_;
};

}  // namespace aisc
