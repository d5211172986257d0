// Products of matrices that are in F8: codes are multiplied, as GPUs do from compute capability 8.9
// on (Ada, Hopper), and not the numbers that they stand for.
#pragma once

#include "10_model_compression/more/eight_bits.h"
#include "common/ops/ops.h"

namespace aisc {

// out (M, N) = [out +] a b^T [+ bias],  a (M, K), b (N, K), each with one scale. Out: BF16 or F32,
// on the host also F64; bias (N): BF16, or F64 beside F64, not together with Accumulate.
//
// In both operands the numbers that are summed are neighbours: tensor cores of
// 16-bit types take their operands in either order, those of F8 in this one alone, so that each of
// the three products of a linear layer needs operands of its own: see transposed().
//
// On a GPU it is a product of cuBLASLt, sums in F32, scales read from the GPU's memory. Where it
// has none (an older GPU, two operands in E5M2, sizes that are not multiples of 16) and on the host
// both are decoded, which is exact in BF16, and multiplied as BF16 or out's type: the same sums in
// another order. Throws Error for what does not fit together.
void f8_matmul(View out, const F8Tensor& a, const F8Tensor& b,
               ops::Into into = ops::Into::Overwrite, ConstView bias = {});

// (C, N) of x (..., C) seen as rows (N, C), of one scale: the codes move, the scale is shared.
F8Tensor transposed(const F8Tensor& x);

}  // namespace aisc
