// Products with weights that stay codes: no whole weight of floating numbers exists.
#pragma once

#include "10_model_compression/quantize.h"

namespace aisc {

// Rows of x from which codes are decoded by the block, for ops::matmul. Below it each row of codes
// is decoded in registers, once for all rows of x.
inline constexpr std::int64_t kDecodedFrom = 5;

// y (N, O) = x (N, I) weight^T [+ bias]: weight (O, I) as codes, bias (O). All of F32, on a device
// whose memory is the host's.
//
// With few rows of x, as in generation, each row of codes is decoded in registers: of a group with
// scale s and zero point z the sum over its columns of x_i s (u_i - z) is s times that of
// x_i (u_i - z), so that a code costs a shift, two operations that make it a float, and a
// multiply-add. The time is then that of reading the codes, 4 or 8 times fewer bytes than F32 has.
// With many rows the product is bound by arithmetic, and codes only cost: a block of rows of the
// weight is decoded into Purpose::Workspace, about 1 MiB, and multiplied as F32.
//
// The result does not depend on the number of threads for fewer than kDecodedFrom rows. Throws
// Error for shapes and types that do not fit.
void quant_product(View y, ConstView x, const Codes& weight, ConstView bias = {});

}  // namespace aisc
