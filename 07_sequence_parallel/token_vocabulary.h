// The vocabulary in parts (06_tensor_parallel/vocab_parallel_table.h) beside ranks that have 1/t of
// the tokens each.
#pragma once

#include "common/nn/embedding.h"

namespace aisc {

// tokens (B, T) I32, the same on all ranks -> this rank's rows of table[token], (B, T/t, C): each
// rank looks up what it has, g-bar sums. Backward gathers dy. While generating: of all tokens.
// Steps: 2(t-1). Bytes sent per rank: (t-1)/t of x of all tokens, forward and backward.
class ScatteredEmbedding final : public Layer {
 public:
  // table: part_of_table(). tp must outlive it.
  ScatteredEmbedding(const Rank& rank, Communicator& tp, Parameter table, DType dtype)
      : Layer(rank, "wte"), tp_(tp), dtype_(dtype), table_(std::move(table)) {}

  Tensor forward(Tensor tokens, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override { return {&table_}; }

 private:
  Communicator& tp_;
  DType dtype_;
  Parameter table_;
};

// x (B, T/t, C), this rank's tokens -> its logits of all tokens (B, T, V/t): a
// GatheredColumnLinear without a bias, whose weight is the embedding's table or its own.
// Steps: 3(t-1). Bytes sent per rank: (t-1)/t of x of all tokens forward, twice that backward.
class GatheredHead final : public TiedHead {
 public:
  GatheredHead(const Rank& rank, Communicator& tp, Parameter& table)
      : TiedHead(rank, table), tp_(tp) {}
  GatheredHead(const Rank& rank, Communicator& tp, Parameter&& own_table)
      : TiedHead(rank, std::move(own_table)), tp_(tp) {}

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dlogits, Saved& saved, const Pass& pass) override;

 private:
  Communicator& tp_;
};

}  // namespace aisc
