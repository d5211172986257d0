#include "07_sequence_parallel/token_vocabulary.h"

#include "06_tensor_parallel/vocab_parallel_table.h"
#include "07_sequence_parallel/g_and_g_bar.h"

namespace aisc {

Tensor ScatteredEmbedding::forward(Tensor tokens, Saved& saved, const Pass& pass) const {
  const auto span = rank_.trace.span("embedding", table_.name);
  Tensor share({tokens.shape()[0], tokens.shape()[1], table_.shape[1]}, dtype_,
               tokens.device());  // (B, T, C)
  ops::embedding(as_rows(share), table_.value(), tokens.view().reshaped({tokens.count()}),
                 ops::Into::Overwrite, part_of_vocabulary(table_));
  Passing passing = pass.cache
                        ? begin_through(Conjugate::G, Direction::Forward, tp_, std::move(share))
                        : begin_through(SequenceConjugate::GBar, Direction::Forward, tp_,
                                        share);  // comm: x; one rank has a token's vector, others 0
  saved.push(std::move(tokens));
  return wait_for(rank_, std::move(passing), name_);
}

Tensor ScatteredEmbedding::backward(Tensor dy, Saved& saved, const Pass& /*pass*/) {
  const auto span = rank_.trace.span("embedding", table_.name);
  const Tensor tokens = saved.pop();
  const Tensor all = wait_for(rank_,
                              begin_through(SequenceConjugate::GBar, Direction::Backward, tp_,
                                            dy),  // comm: dy; any token may be of this part
                              name_);
  ops::embedding_backward(table_.grad(), as_rows(all), tokens.view().reshaped({tokens.count()}),
                          table_.next_grad(), part_of_vocabulary(table_));
  return Tensor();
}

Tensor GatheredHead::forward(Tensor x, Saved& saved, const Pass& pass) const {
  const auto span = rank_.trace.span("product", "head");
  const Tensor all = pass.cache ? x.share()
                                : wait_for(rank_,
                                           begin_through(SequenceConjugate::G, Direction::Forward,
                                                         tp_, x),  // comm: x, for the product
                                           name_);
  saved.push(std::move(x));
  return product(all, table());
}

Tensor GatheredHead::backward(Tensor dlogits, Saved& saved, const Pass& pass) {
  const auto span = rank_.trace.span("product", "head");
  const Tensor x = saved.pop();  // (B, T/t, C)
  Passing all = begin_through(SequenceConjugate::G, Direction::Forward, tp_,
                              x);  // comm: x once more, beside the product of dx
  const Tensor share = input_grad(dlogits, table());
  Tensor all_x = wait_for(rank_, std::move(all), name_);  // (B, T, C)
  Passing dx = begin_through(SequenceConjugate::G, Direction::Backward, tp_,
                             share);  // comm: dx, beside the product below
  weight_grad(pass, table(), std::move(dlogits), std::move(all_x));
  return wait_for(rank_, std::move(dx), name_);
}

}  // namespace aisc
