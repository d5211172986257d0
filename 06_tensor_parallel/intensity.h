// Why a product must not be split too often: a rank's part has 1/p of the arithmetic and reads all
// of X, and from some p on the memory is what it waits for.
#pragma once

#include <cstdint>

#include "common/core/dtype.h"

namespace aisc {

// Y = X A with A split by columns over p ranks: X (M, K), of which every rank has all; A (K, N) and
// Y (M, N), of which it has N/p columns. N/p need not be whole here.
struct SplitProduct {
  std::int64_t M = 1, N = 1, K = 1;
  DType dtype = DType::BF16;
};

// Of one rank: arithmetic operations, and bytes that are read and written at least, each tensor
// once. What the library charges for the same product (common/ops/costs.h).
struct PartCost {
  double flops = 0, bytes = 0;
  double intensity() const { return flops / bytes; }  // FLOPs a byte
};
// For n x n matrices in a type of 2 bytes the intensity is n / (2 + p). Throws Error for a size or
// a number of ranks below 1.
PartCost cost_of_part(const SplitProduct& product, std::int64_t ranks);

// The largest p with which the part of a rank still has `balance` FLOPs a byte: those of a machine
// are its peak over its bandwidth, and a part with fewer waits for memory. A rank has a column at
// least, so that it is N at most; 0 where not even the whole product has so many. It need not
// divide N. For n x n matrices in a type of 2 bytes p <= n / balance - 2: an A100 (312 TFLOP/s,
// 2039 GB/s: 153) has 24 for n = 4096 and 11 for 2048. Throws Error for a size below 1 and for a
// balance that is not above 0.
std::int64_t most_ranks(const SplitProduct& product, double balance);

}  // namespace aisc
