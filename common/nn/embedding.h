// Tokens become vectors, and the last vectors become logits through the same table.
#pragma once

#include "common/nn/layer.h"

namespace aisc {

// tokens (B, T) I32 -> table[token] + positions[t]  (B, T, C). backward returns an empty tensor.
class Embedding final : public Layer {
 public:
  // table (rows, width) named <name>.wte.weight, of which the rows from `vocabulary` on are padding
  // and 0; positions (context, width) named <name>.wpe.weight.
  Embedding(const Rank& rank, const std::string& name, std::int64_t vocabulary, std::int64_t rows,
            std::int64_t context, std::int64_t width, DType dtype);

  Tensor forward(Tensor tokens, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override { return {&table_, &positions_}; }

  Parameter& table() { return table_; }
  Parameter& positions() { return positions_; }

 private:
  Tensor position_ids(const Tensor& tokens, const Pass& pass) const;  // (B, T) I32

  Rank rank_;
  DType dtype_;
  Parameter table_, positions_;
};

// x (B, T, C) -> logits (B, T, V) = x table^T. The table is the embedding's: one parameter whose
// gradient has two contributions, of which this one comes first in the backward pass.
class TiedHead final : public Layer {
 public:
  TiedHead(const Rank& rank, Parameter& table) : rank_(rank), table_(table) {}

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dlogits, Saved& saved, const Pass& pass) override;

 private:
  Rank rank_;
  Parameter& table_;
};

}  // namespace aisc
