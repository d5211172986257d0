// How the gradients are cut into buckets, each summed by one all-reduce (Li et al., "PyTorch
// Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020, section 3.2).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/nn/flat_layout.h"
#include "common/nn/model.h"

namespace aisc {

// Cuts `count` elements of the flat gradients into buckets, in the order in which backward
// completes them: from the end, where the last layer lies, to the beginning. The first bucket has
// `first` elements, so that communication begins early, each other `size`, the last what remains.
// Buckets are cut anywhere, also inside a parameter: the gradients are one buffer. So there are 1 +
// ceil((count - first) / size) of them, or one where count <= first; none of 0 elements. Throws
// Error for sizes below 1.
std::vector<Range> bucket_layout(std::int64_t count, std::int64_t first, std::int64_t size);

// For each bucket the units that lie in it, wholly or in part: it is complete when they all are.
std::vector<std::vector<std::size_t>> units_of_buckets(const FlatLayout& layout,
                                                       std::span<const Range> buckets);

}  // namespace aisc
