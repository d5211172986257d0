// Yours to write; from 06_tensor_parallel/solution/vocab_parallel_table.cpp (stub cd9ff056ae2b).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
#include "06_tensor_parallel/vocab_parallel_table.h"

#include "06_tensor_parallel/f_and_g.h"
#include "common/core/error.h"

namespace aisc {

Parameter part_of_table(const Communicator& tp, const GptConfig& config) {
  const std::int64_t rows = config.table_rows(), begin = rows * tp.rank() / tp.size();
  Parameter table = token_table(config.vocabulary, rows, config.width);
  table.split_dim = 0;
  table.split_begin = begin;
  table.shape = {rows * (tp.rank() + 1) / tp.size() - begin, config.width};
  return table;
}

ops::TablePart part_of_vocabulary(const Parameter& table) {
  return {.begin = table.split_begin, .all = table.global_shape[0]};
}

Tensor VocabParallelEmbedding::vectors_of(const Tensor& tokens) const {
  const View ids = tokens.view().reshaped({tokens.count()});  // (B T)
  Tensor x({tokens.shape()[0], tokens.shape()[1], table_.shape[1]}, dtype_,
           tokens.device());  // (B, T, C)
  // LAB 06.4: the embedding of a vocabulary in parts
  // ops::embedding(as_rows(x), table, ids, ops::Into::Overwrite, part) looks rows up; `part` is
  // which rows of the vocabulary `table` has (part_of_vocabulary), of a token of another part it
  // writes zeros. What do the other ranks have for these? f_and_g.h has what brings it here:
  // begin_through(), and wait_for(rank_, std::move(passing), name_).
  throw NotImplemented("lab 06.4: the embedding of a vocabulary in parts", __FILE__, __LINE__);
  // END LAB 06.4
}

Tensor VocabParallelEmbedding::forward(Tensor tokens, Saved& saved, const Pass& /*pass*/) const {
  const auto span = rank_.trace.span("embedding", table_.name);
  Tensor x = vectors_of(tokens);
  saved.push(std::move(tokens));
  return x;
}

Tensor VocabParallelEmbedding::backward(Tensor dy, Saved& saved, const Pass& /*pass*/) {
  const auto span = rank_.trace.span("embedding", table_.name);
  const Tensor tokens = saved.pop();
  ops::embedding_backward(table_.grad(), as_rows(dy), tokens.view().reshaped({tokens.count()}),
                          table_.next_grad(), part_of_vocabulary(table_));
  return Tensor();
}

Tensor VocabParallelHead::backward(Tensor dlogits, Saved& saved, const Pass& pass) {
  const auto span = rank_.trace.span("product", "head");
  Tensor x = saved.pop();  // (B, T, C)
  Passing share =
      begin_through(Conjugate::F, Direction::Backward, tp_,
                    input_grad(dlogits, table()));  // comm: dx, beside the product below
  weight_grad(pass, table(), std::move(dlogits), std::move(x));
  return wait_for(rank_, std::move(share), name_);
}

}  // namespace aisc
