// Dropout whose mask any rank can compute for any part of the batch.
#pragma once

#include <vector>

#include "common/nn/layer.h"

namespace aisc {

// What backward needs of a mask: it is drawn again, or kept, a byte an element.
enum class Masks { Drawn, Stored };

class Dropout : public Layer {
 public:
  // 0 <= rate < 1; at rate 0, or outside training, the layer is the identity and keeps nothing.
  Dropout(const Rank& rank, std::string name, double rate, std::uint64_t seed,
          Masks masks = Masks::Drawn)
      : Layer(rank, std::move(name)), rate_(rate), seed_(seed), masks_(masks) {}

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const final;  // in place
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) final;

 protected:
  // Elements at .. at + count of x draw by the indices from `first` on of the step's stream.
  struct Run {
    std::int64_t at, count;
    std::uint64_t first;
  };
  // x (B, T, C): element (b, t, c) of the global batch has index b * 2^32 + t * C + c, whoever
  // holds it and whatever the length of the sequence on this rank.
  virtual std::vector<Run> runs(const Tensor& x, const Pass& pass) const;

 private:
  // The mask is written where it is not empty.
  Tensor apply(Tensor x, const Pass& pass, View mask) const;
  bool drops(const Pass& pass) const { return rate_ > 0 && pass.training; }

  double rate_;
  std::uint64_t seed_;
  Masks masks_;
};

}  // namespace aisc
