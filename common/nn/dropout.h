// Dropout whose mask any rank can compute for any part of the batch.
#pragma once

#include "common/nn/layer.h"

namespace aisc {

class Dropout final : public Layer {
 public:
  // 0 <= rate < 1; at rate 0, or outside training, the layer is the identity.
  Dropout(const Rank& rank, std::string name, double rate, std::uint64_t seed)
      : Layer(rank, std::move(name)), rate_(rate), seed_(seed) {}

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;  // (B, T, C), in place
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;

 private:
  Tensor apply(Tensor x, const Pass& pass) const;

  double rate_;
  std::uint64_t seed_;
};

}  // namespace aisc
