// What BERT is pre-trained by: two losses at once.
#pragma once

#include <memory>

#include "common/nn/model.h"
#include "common/ops/ops.h"

namespace aisc {

// Over scores of BertHead and targets (B + B K), I32, -1 for none: of each sample 0 (B follows A)
// or 1 (it does not), then of its masked words their ids. "The training loss is the sum of the mean
// masked LM likelihood and the mean next sentence prediction likelihood" (Devlin et al., arXiv
// 1810.04805, appendix A.2): each is a mean over terms of its own, the first over all W masked
// words of the global batch, the second over its S samples. A loss says a sum, which the caller
// divides by W (Pass::terms), and so
//
//   sum over masked words + W/S * sum over samples.
//
// A rank, or a micro-batch, sees some words and some samples: what all of them say adds up to the
// two means, since W and S are the global batch's and not its own. Labels that are -1, as of places
// that another rank has, count nothing.
class BertLoss final : public Loss {
 public:
  // `words`: CrossEntropy over the vocabulary, or of its parts (06_tensor_parallel/
  // vocab_parallel_loss.h), whose columns here are `classes`, padding among them. `batch`: S while
  // training; where windows are evaluated Pass::terms is W/S of all of them, times the samples
  // here. `predictions`: K.
  BertLoss(const Rank& rank, std::unique_ptr<Loss> words, std::int64_t classes, std::int64_t batch,
           std::int64_t predictions);

  // 0 without picked rows (Pass::picked), of which no label can be. Throws Error for a label that
  // is none of -1, 0 and 1, a word outside the vocabulary, and a pass without terms.
  double forward(Tensor scores, const Tensor& targets, Saved& saved,
                 const Pass& pass) const override;
  Tensor backward(Saved& saved, double factor) const override;
  // Of the words: (M, V).
  Tensor all_logits(Tensor scores) const override;

 private:
  // W/S, between forward and backward.
  void keep(Saved& saved, double weight) const;
  static double kept(Saved& saved);

  Rank rank_;
  std::unique_ptr<Loss> words_, next_sentence_;
  std::int64_t classes_, batch_, predictions_;
  mutable CpuDevice host_;  // of the weight that is kept for backward
};

}  // namespace aisc
