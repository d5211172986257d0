// The numbers of eight_bits.h where they lie on a GPU: the same bits. Shapes, types and formats
// have been checked, there is at least one number, and all is on one GPU. Without CUDA all throw
// Error.
#pragma once

#include "10_model_compression/more/eight_bits.h"
#include "common/ops/ops.h"

namespace aisc::f8_gpu {

// Waits for the GPU: the number comes to the host.
float largest_magnitude(ConstView x);

// scale (1), F32 = f8_scale() of it. Waits for nothing.
void find_scale(View scale, ConstView x, const NumberFormat& format);

// Nor do these: a scale is found and used on the GPU. `scale`: known before; 0: it is not.
void to_f8(const F8Tensor& out, ConstView x, float scale = 0);
void from_f8(View out, const F8Tensor& x);
void round_to_f8(View out, ConstView x, const NumberFormat& format, const ScaleBlocks& blocks,
                 float scale = 0);

// to (columns, rows) = from (rows, columns), U8.
void transpose(View to, ConstView from);

// Of f8_matmul.h, by cuBLASLt. False, and nothing done, where it has no algorithm for this.
bool multiply(View out, const F8Tensor& a, const F8Tensor& b, ops::Into into, ConstView bias);

}  // namespace aisc::f8_gpu
