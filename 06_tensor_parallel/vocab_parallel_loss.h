// The loss of a language model of whose logits each rank has those of some classes.
#pragma once

#include "common/nn/model.h"
#include "common/ops/ops.h"

namespace aisc {

// log(sum of exp) over the classes of all ranks, from that over each rank's own: (N) F64 on the
// host, minus infinity where a rank has no class. The same on all ranks. Nothing overflows: each
// rank's are related to the largest of all before they are summed. Blocks.
// Two all-reduces of N numbers, a maximum and a sum.
Tensor log_sum_exp_of_all(Communicator& tp, const Tensor& own);

// Over this rank's logits (..., V/t) and targets (...), I32, -1 for none, the same on all ranks
// (Shoeybi et al., Megatron-LM, arXiv 1909.08053, section 3). The negative log-likelihood of a
// token is log(sum of exp) over all classes, less the logit of its target, which one rank has. So
// two numbers a token are sent, and 8 bytes for the sum of all losses: not V logits a token. The
// gradient is softmax - one_hot of this rank's columns, and needs nothing more. Kept: the logits,
// which become their own gradient in place, and one number per token. tp must outlive it.
class VocabParallelCrossEntropy final : public Loss {
 public:
  // part: which columns of all these logits are; those from `vocabulary` on are padding.
  VocabParallelCrossEntropy(const Rank& rank, Communicator& tp, const ops::TablePart& part,
                            std::int64_t vocabulary)
      : rank_(rank), tp_(tp), part_(part), vocabulary_(vocabulary) {}

  // The sum over all tokens, the same on all ranks. Throws Error naming a target that is no class.
  double forward(Tensor logits, const Tensor& targets, Saved& saved,
                 const Pass& pass) const override;
  Tensor backward(Saved& saved, double factor) const override;
  // (N, rows of the whole table), the same on all ranks. For text, of few rows at a time.
  Tensor all_logits(Tensor logits) const override;

 private:
  ops::TablePart classes_here() const;
  std::int64_t classes_of(const Tensor& logits) const;

  Rank rank_;
  Communicator& tp_;
  ops::TablePart part_;
  std::int64_t vocabulary_;
};

}  // namespace aisc
