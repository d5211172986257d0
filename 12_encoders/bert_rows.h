// What BERT's heads look at: a few rows of what the blocks made, each behind a layer of its own.
#pragma once

#include <memory>

#include "common/nn/layer.h"

namespace aisc {

// y = tanh(x).
class Tanh final : public Layer {
 public:
  using Layer::Layer;
  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
};

// tanh(x W^T + b), (N, C) -> (N, C), W (C, C) named "pooler.weight": how BERT sums up a text, of
// the row of its [CLS].
std::unique_ptr<Layer> make_pooler(const Rank& rank, std::int64_t width);

// Rows of x (B, T, C) by their places b T + t, which are ids of a table of B T rows; the id B T is
// that of a row that is not here, and zeros.
class PickedRows {
 public:
  // `token_ranks`: those that have 1/t of the tokens each (07_sequence_parallel/g_and_g_bar.h).
  // Each has the rows of its tokens, as of a vocabulary in parts
  // (06_tensor_parallel/vocab_parallel_table.h), zeros for the others, and g sums: all ranks then
  // have all rows, and their gradients. Null: x is of all tokens. They must outlive it.
  // Steps: 2(t-1). Bytes sent per rank: 2(t-1)/t of y, in forward.
  PickedRows(const Rank& rank, Communicator* token_ranks)
      : rank_(rank), token_ranks_(token_ranks) {}

  int ranks() const { return token_ranks_ ? token_ranks_->size() : 1; }
  // y (N, C); places (N) I32. Throws Error naming a place outside [0, B T].
  Tensor forward(const Tensor& x, ConstView places) const;
  // dx (B, T, C), of which all rows that are not picked are 0. A row that is picked twice gets both
  // gradients.
  void backward(View dx, const Tensor& dy, ConstView places) const;

 private:
  ops::TablePart rows_here(std::int64_t rows) const;

  Rank rank_;
  Communicator* token_ranks_;
};

// x (B, T, C) -> (B + M, C), of the places in Pass::picked: the first B go through the pooler, the
// other M, masked words, through what stands before their head: norm(gelu(x W^T + b)), W (C, C)
// named "transform.weight", the norm "transform_norm" (BERT's masked language model; Devlin et al.,
// arXiv 1810.04805, section 3.1, and their code). Without picked places: the first token of each
// sample, and no words. Throws Error for fewer places than samples.
class BertRows final : public Layer {
 public:
  // As PickedRows.
  BertRows(const Rank& rank, std::int64_t width, double epsilon,
           Communicator* token_ranks = nullptr);

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override;

 private:
  PickedRows picked_;
  std::unique_ptr<Layer> pooler_, words_;
};

// Pass::picked, or of each of B samples of T tokens the first: (N) I32.
Tensor picked_places(const Pass& pass, std::int64_t samples, std::int64_t tokens, Device& device);

}  // namespace aisc
