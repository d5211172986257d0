// A vocabulary split over ranks: each rank has some rows of the table, of which the embedding looks
// up and the head makes logits.
#pragma once

#include "common/nn/embedding.h"
#include "common/nn/gpt.h"

namespace aisc {

// Rows r V/t .. (r+1) V/t of the table of `config` (V = table_rows()), named and drawn as the
// whole. V need not divide: the parts' rows then differ by one. Padding lies in the last parts.
Parameter part_of_table(const Communicator& tp, const GptConfig& config);

// Which rows of the vocabulary these are.
ops::TablePart part_of_vocabulary(const Parameter& table);

// tokens (B, T) I32 -> table[token] (B, T, C), of type `dtype`, the same on all ranks (Shoeybi et
// al., Megatron-LM, arXiv 1909.08053, section 3). Each rank looks up the tokens whose rows it has
// and has zeros for the others; g sums. backward returns an empty tensor, sends nothing, and adds
// to the rows of this rank. Throws Error naming a token outside the table. tp must outlive it.
// Steps: 2(t-1). Bytes sent per rank: 2(t-1)/t of x, in forward.
class VocabParallelEmbedding final : public Layer {
 public:
  // table: part_of_table().
  VocabParallelEmbedding(const Rank& rank, Communicator& tp, Parameter table, DType dtype)
      : Layer(rank, "wte"), tp_(tp), dtype_(dtype), table_(std::move(table)) {}

  Tensor forward(Tensor tokens, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override { return {&table_}; }

 private:
  Tensor vectors_of(const Tensor& tokens) const;

  Communicator& tp_;
  DType dtype_;
  Parameter table_;
};

// x (B, T, C), the same on all ranks -> this rank's logits (B, T, V/t) = x table_r^T: a column-
// parallel layer without a bias, whose weight is the embedding's table or, on a pipeline's last
// stage, its own. Forward sends nothing; backward sums dx over tp (f) while it computes the table's
// gradient. tp must outlive it.
// Steps: 2(t-1). Bytes sent per rank: 2(t-1)/t of dx, in backward.
class VocabParallelHead final : public TiedHead {
 public:
  VocabParallelHead(const Rank& rank, Communicator& tp, Parameter& table)
      : TiedHead(rank, table), tp_(tp) {}
  VocabParallelHead(const Rank& rank, Communicator& tp, Parameter&& own_table)
      : TiedHead(rank, std::move(own_table)), tp_(tp) {}

  Tensor backward(Tensor dlogits, Saved& saved, const Pass& pass) override;

 private:
  Communicator& tp_;
};

}  // namespace aisc
