// Adafactor: the second moment of an n x m matrix in n + m numbers in place of n m (Shazeer and
// Stern, "Adafactor: adaptive learning rates with sublinear memory cost", arXiv 1804.04235).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "04_sharding/factored_moment.h"
#include "common/comm/rank.h"
#include "common/optim/optimizer.h"

namespace aisc {

// In step t, with g the gradient times OptimizerStep::gradient_scale:
//   beta2 = 1 - t^-decay_power                                   (section 7.2: no bias to correct)
//   V     = the moving average of g^2 + eps1, of matrices by the sums of its rows and columns
//   U     = g / sqrt(V),   U <- U / max(1, RMS(U) / clip)        (section 6: update clipping)
//   alpha = max(eps2, RMS(X)) rho                                (section 8: relative step)
//   X     <- X - alpha (U + weight_decay X)                      (decay of slices that ask for it)
// There is no momentum. RMS is of a whole parameter. Numbers are F32; F64 for weights in F64. A
// weight in BF16 is a copy of its F32 master.
//
// A matrix is a parameter of two dimensions, both longer than 1. Its R and C are kept as sums, not
// as means, by every rank: n + m numbers. Other parameters keep v by the element, of a rank's
// slices.
//
// Slices may be any runs of elements, also from the middle of one row to the middle of another.
// Every element adds to the sums of its row and its column on the one rank that has it. Then two
// all-reduces a step make them sums of whole parameters: of n + m numbers for each matrix, and of 2
// numbers for each parameter. Ranks that each have a part of a matrix (tensor parallelism) add to
// its rows and columns of the sums, and reduce once more, over these ranks; what they all have the
// first of them counts. Stages of a pipeline have parameters of their own, and nothing to send.
//
// Padding (Init::drawn: elements from this index on are 0 and have no gradient) is as if it were
// not there: it enters no sum and no count of a mean, and it is not updated. A padded table then
// moves as the same table without padding.
class Adafactor final : public Optimizer {
 public:
  // rho: min(1e-2, 1 / sqrt t), or OptimizerStep::learning_rate.
  enum class Step { Relative, Scheduled };
  // OfAll: every rank has all elements, of the same gradients, and nothing is sent.
  // Divided: all ranks' slices together are each parameter once.
  enum class Slices { OfAll, Divided };
  struct Options {
    double clip = 1;  // d; infinite: no clipping
    double decay_power = 0.8;
    double eps1 = 1e-30, eps2 = 1e-3;
    double weight_decay = 0;
    Step step = Step::Relative;
    Slices slices = Slices::OfAll;
    // The ranks that have the other parts of parameters which are split (tensor parallelism); null:
    // every rank has all of each. The sums are theirs together.
    Communicator* parts = nullptr;
  };
  // `all_parameters` are those that are trained, in the same order on all ranks; they must outlive
  // this. Each slice names its parameter. A rank may have no slice at all. Divided: collective on
  // rank.world, one all-reduce of P + 2 integers for P parameters, which finds what nobody has; not
  // on a device without numbers. Throws Error for options that make no sense; for slices of no
  // known parameter or beyond its end; for parameters of which ranks have different parts without
  // Options::parts; for weights that are neither F32, BF16 nor F64, or F64 beside shorter ones; for
  // weights elsewhere than on the host or on a device without numbers; and where slices are not
  // each parameter once.
  Adafactor(const Rank& rank, std::span<const Parameter* const> all_parameters,
            std::vector<OptimizerSlice> slices, const Options& options);

  // By slice "NAME/master" and, of what is no matrix, "NAME/v"; by matrix, the same on all ranks
  // and of no parameter, "NAME/row" (n) and "NAME/column" (m).
  std::vector<State> state() const override;

 private:
  struct Whole {  // a parameter
    const Parameter* parameter;
    std::int64_t used;   // elements before its padding, of all parts
    std::int64_t begin;  // of its row sums in moment_; its column sums follow
    bool counts;         // false: another rank of parts has it, too, and counts it
  };

  void do_step(const OptimizerStep& options, std::int64_t step) override;
  void check() const;
  std::size_t find_whole(const OptimizerSlice& slice) const;
  DType agree_on_type() const;
  void factor(const Tensor& sums, double beta2, const Tensor& factors) const;
  void add_up(const Tensor& sums) const;
  struct Pass {  // over all slices: FLOPs of an element, and how often each is read or written
    double flops;
    std::size_t weights = 0, moments = 0, copies = 0;
  };
  template <class F>
  void each_part(const Tensor& of_matrices, double scale, const Pass& pass, const F& f) const;

  const Rank rank_;
  const Options options_;
  Device& device_;
  std::vector<Whole> wholes_;
  std::vector<std::size_t> whole_of_;  // each slice's
  Tensor moment_;                      // R and C of all matrices
  std::vector<Tensor> v_;              // by slice; empty for matrices
};

}  // namespace aisc
