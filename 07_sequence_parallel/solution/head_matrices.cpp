#include "07_sequence_parallel/head_matrices.h"

#include "common/ops/ops.h"

namespace aisc {

Tensor by_heads(const Tensor& qkv, std::int64_t heads) {
  const std::int64_t B = qkv.shape()[0], T = qkv.shape()[1], D = qkv.shape()[2] / heads / 3;
  const Tensor of_a_head({B, heads, T, 3 * D}, qkv.dtype(), qkv.device(), Purpose::Workspace);
  ops::permute(of_a_head, qkv.view().reshaped({B, T, heads, 3 * D}), {0, 2, 1, 3});
  Tensor parts({3, B * heads, T, D}, qkv.dtype(), qkv.device());
  ops::permute(parts.view().reshaped({3, B * heads * T, D}),
               of_a_head.view().reshaped({B * heads * T, 3, D}), {1, 0, 2});
  return parts;
}

Tensor by_tokens(const Tensor& parts, std::int64_t heads) {
  const std::int64_t B = parts.shape()[1] / heads, T = parts.shape()[2], D = parts.shape()[3];
  const Tensor of_a_head({B, heads, T, 3 * D}, parts.dtype(), parts.device(), Purpose::Workspace);
  ops::permute(of_a_head.view().reshaped({B * heads * T, 3, D}),
               parts.view().reshaped({3, B * heads * T, D}), {1, 0, 2});
  Tensor qkv({B, T, heads * 3 * D}, parts.dtype(), parts.device());
  ops::permute(qkv.view().reshaped({B, T, heads, 3 * D}), of_a_head, {0, 2, 1, 3});
  return qkv;
}

View part(const Tensor& parts, std::int64_t i) {
  const Shape& shape = parts.shape();
  return parts.rows(i, i + 1).reshaped({shape[1], shape[2], shape[3]});
}

Tensor matrices_of(const Tensor& x, std::int64_t heads) {
  const std::int64_t B = x.shape()[0], T = x.shape()[1], D = x.shape()[2] / heads;
  Tensor matrices({B * heads, T, D}, x.dtype(), x.device(), Purpose::Workspace);
  ops::permute(matrices.view().reshaped({B, heads, T, D}), x.view().reshaped({B, T, heads, D}),
               {0, 2, 1, 3});
  return matrices;
}

Tensor columns_of(const Tensor& matrices, std::int64_t heads) {
  const std::int64_t B = matrices.shape()[0] / heads, T = matrices.shape()[1];
  const std::int64_t D = matrices.shape()[2];
  Tensor x({B, T, heads * D}, matrices.dtype(), matrices.device());
  ops::permute(x.view().reshaped({B, T, heads, D}), matrices.view().reshaped({B, heads, T, D}),
               {0, 2, 1, 3});
  return x;
}

}  // namespace aisc
