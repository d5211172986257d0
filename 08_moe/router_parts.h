// What routers are made of.
#pragma once

#include "common/nn/layer.h"

namespace aisc {

// Of logits (B, T, E): memory for `columns` numbers of each token, in their type, or for as many
// ids of experts.
inline Tensor numbers_like(const Tensor& logits, std::int64_t columns) {
  return Tensor(logits.shape().with(-1, columns), logits.dtype(), logits.device());
}
inline Tensor ids_like(const Tensor& logits, std::int64_t columns) {
  return Tensor(logits.shape().with(-1, columns), DType::I32, logits.device());
}

}  // namespace aisc
