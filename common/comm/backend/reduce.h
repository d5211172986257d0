// Sums (products, minima, maxima) of buffers in host memory: the arithmetic of collectives.
#pragma once

#include <cstdint>
#include <span>

#include "common/comm/call.h"

namespace aisc {

// for i < count: to[i] = to[i] op from[i]. BF16 and F16 are rounded after each call. Integers wrap
// round. Single-threaded. `to` and `from` are the same or disjoint.
void reduce_into(void* to, const void* from, std::int64_t count, DType dtype, ReduceOp op);

// for i < count: the value in[0][i] op in[1][i] op ... in this order, written to out[j][i] for all
// j. BF16 and F16 are summed in F32 and rounded once. An `out` may be an `in` (in place): every
// element is read from all inputs before it is written. Each memory is read and written once, in
// short tiles. Min and Max propagate NaN. Single-threaded; ins is not empty.
void reduce_all(std::span<const void* const> ins, std::span<void* const> outs, std::int64_t count,
                DType dtype, ReduceOp op);

}  // namespace aisc
