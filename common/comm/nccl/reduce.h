// Sums (products, minima, maxima) of buffers on a GPU: the arithmetic of plans.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/comm/call.h"

namespace aisc::nccl {

// Enqueues: for i < count: to[i] = to[i] op from[i], as reduce_into() of comm/backend/reduce.h does
// it. BF16 and F16 are computed in F32 and rounded; integers wrap round; Min and Max propagate NaN.
// `to` and `from` are the same or disjoint.
void reduce_into(void* to, const void* from, std::int64_t count, DType dtype, ReduceOp op,
                 cudaStream_t stream);

}  // namespace aisc::nccl
