// The logits of all words, for a text: training needs two numbers a token of them
// (vocab_parallel_loss.cpp).
#include "06_tensor_parallel/vocab_parallel_loss.h"

namespace aisc {

Tensor VocabParallelCrossEntropy::all_logits(Tensor logits) const {
  const std::int64_t N = logits.shape()[0], own = logits.shape()[1];
  Tensor all = Tensor::zeros({N, part_.all}, logits.dtype(), logits.device());  // (N, V)
  for (std::int64_t n = 0; n < N; ++n)
    logits.device().copy(all.view().flat(n * part_.all + part_.begin, own),
                         logits.view().flat(n * own, own));
  tp_.all_reduce(all).wait();  // comm: V numbers a row, of which one rank has each and others 0
  return all;
}

}  // namespace aisc
