// The ways to multiply matrices on the CPU.
#pragma once

#include "common/ops/ops.h"

namespace aisc::cpu {

// Blocked and packed, in any floating type, on any processor: the way of F64, and of all types
// where the program is built without oneDNN.
void plain_product(View out, ConstView a, ConstView b, const ops::MatmulOptions& options);

// F32, BF16 and F16 by oneDNN. (no_onednn.cpp: the plain product.)
void library_product(View out, ConstView a, ConstView b, const ops::MatmulOptions& options);

// Whether its kernels for F32 are made for this processor; where not, ours are taken.
bool library_has_f32(Device& device);

// BF16 by the matrix instruction of ARM's processors (FEAT_BF16: Neoverse V1, Apple M2 and later),
// and whether this is one of them. Its sums are rounded to odd, not to even, and numbers below
// 2^-126 count as 0 (Arm Architecture Reference Manual, BFMMLA).
void matrix_product(View out, ConstView a, ConstView b, const ops::MatmulOptions& options);
bool runs_matrix_product();

// BF16 and F16 by way of F32: for processors that have no dot product of the type, or whose dot
// products are slower than F32 multiply-adds.
void widened_product(View out, ConstView a, ConstView b, const ops::MatmulOptions& options);

// One row, out (1, N) = [out +] alpha a (1, K) b (N, K)^T [+ bias], in any floating type.
void row_product(View out, ConstView a, ConstView b, const ops::MatmulOptions& options);

// The sizes of out (batch, M, N) = op(a) (batch, M, K) op(b) (batch, K, N); batch 1 for matrices.
struct ProductSizes {
  ProductSizes(const View& out, const ConstView& a, ops::Transpose transpose);
  std::int64_t batch, M, N, K;
};

}  // namespace aisc::cpu
