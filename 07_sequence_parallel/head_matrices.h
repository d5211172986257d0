// Queries, keys and values as matrices, one a head: attention that stores its scores multiplies
// these.
#pragma once

#include "common/core/tensor.h"

namespace aisc {

// qkv (B, T, H 3 D), head-major -> (3, B H, T, D): queries, then keys, then values.
Tensor by_heads(const Tensor& qkv, std::int64_t heads);
// Back.
Tensor by_tokens(const Tensor& parts, std::int64_t heads);
// Of by_heads() the queries (0), the keys (1) or the values (2), (B H, T, D).
View part(const Tensor& parts, std::int64_t i);

// x (B, T, H D) -> (B H, T, D), as workspace; and back.
Tensor matrices_of(const Tensor& x, std::int64_t heads);
Tensor columns_of(const Tensor& matrices, std::int64_t heads);

}  // namespace aisc
