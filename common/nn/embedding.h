// Tokens become vectors, and the last vectors become logits through the same table.
#pragma once

#include <optional>

#include "common/nn/layer.h"

namespace aisc {

// The table of a vocabulary, (rows, width), named "wte.weight": the rows from `vocabulary` on are
// padding and 0.
inline Parameter token_table(std::int64_t vocabulary, std::int64_t rows, std::int64_t width) {
  return whole_parameter("wte.weight", {rows, width}, Init::normal(0.02, vocabulary * width), true);
}

// tokens (B, T) I32 -> table[token]  (B, T, C), of type `dtype`. backward returns an empty tensor.
class Embedding final : public Layer {
 public:
  Embedding(const Rank& rank, Parameter table, DType dtype);

  Tensor forward(Tensor tokens, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override { return {&table_}; }

 private:
  DType dtype_;
  Parameter table_;
};

// x (B, T, C) + positions[t], t a token's place in the sequence (Pass::tokens); in place.
class Positions : public Layer {
 public:
  // positions (context, width) named "wpe.weight".
  Positions(const Rank& rank, std::int64_t context, std::int64_t width);

  // Throws Error for tokens that lie outside the context.
  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override { return {&positions_}; }

 protected:
  // The positions of the tokens of x, I32.
  virtual Tensor position_ids(const Tensor& x, const Pass& pass) const;
  // Those of a whole micro-batch (B, T) of this rank.
  Tensor ids_of(const Shape& tokens, Device& device, const Pass& pass) const;

 private:
  Parameter positions_;
};

// x (B, T, C) -> logits (B, T, V) = x table^T. The table is the embedding's: one parameter whose
// gradient has two contributions, of which this one comes first in the backward pass. A pipeline's
// last stage, which has no embedding, has a table of its own, whose gradients it adds to the
// first's.
class TiedHead : public Layer {
 public:
  TiedHead(const Rank& rank, Parameter& table) : Layer(rank, "head"), table_(table) {}
  TiedHead(const Rank& rank, Parameter&& own_table)
      : Layer(rank, "head"), own_(std::move(own_table)), table_(*own_) {}

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dlogits, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override { return list(own_.has_value()); }
  std::vector<Parameter*> borrows() override { return list(!own_); }

 protected:
  Parameter& table() { return table_; }
  const Parameter& table() const { return table_; }

 private:
  std::vector<Parameter*> list(bool table) const {
    return std::vector<Parameter*>(table ? 1 : 0, &table_);
  }

  std::optional<Parameter> own_;
  Parameter& table_;
};

}  // namespace aisc
