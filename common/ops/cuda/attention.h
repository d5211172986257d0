// What the kernels of causal attention share: the sizes of a call, and the two ways to compute it.
// Tensor cores take BF16 and F16 whose rows begin at multiples of 16 bytes, up to 128 columns a
// head; everything else is the plain way's.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "common/core/tensor.h"

namespace aisc::cuda {

// T tokens, H heads of D columns. `qkv_row` and `out_row` are the elements from a token to the
// next.
struct AttentionSizes {
  AttentionSizes(const ConstView& qkv, std::int64_t heads);

  std::int64_t B;
  int T, H, D;
  std::int64_t qkv_row, out_row;
  double scale;  // of the scores: 1 / sqrt(D)
};

// Blocks that each take one tile of `rows` tokens of one head of one sample. Throws Error beyond
// the 2^31 - 1 that a grid may have.
unsigned attention_blocks(const AttentionSizes& z, int rows);

// True if rows of all these tensors can be copied in pieces of 16 bytes, and tensor cores know the
// type.
bool suits_tensor_cores(const AttentionSizes& z, std::initializer_list<ConstView> tensors);

// attention_plain.cu: any type and size.
void plain_attention(View out, View log_sum_exp, ConstView qkv, const AttentionSizes& z);
void plain_attention_backward(View dqkv, ConstView dout, ConstView qkv, ConstView log_sum_exp,
                              ConstView delta, const AttentionSizes& z);
// delta (B, H, T), typed as log_sum_exp: the sum over the columns of a head of dout * out.
void attention_delta(View delta, ConstView dout, ConstView out, const AttentionSizes& z);

}  // namespace aisc::cuda
