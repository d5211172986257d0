// Rows that lie in runs, and what is sent of them.
#pragma once

#include <cstdint>
#include <vector>

#include "common/core/tensor.h"

namespace aisc {

// Runs of rows of x (n, C) change places: run (i, j) of counts (I, J), which lies at place (i, j),
// comes to (j, i); or back. A table of one row or column stays as it is.
enum class Transposed { There, Back };
Tensor transposed_runs(Tensor x, const std::vector<std::int64_t>& counts, std::size_t columns,
                       Transposed way);

// Of each run of `each` numbers the sum; and of each column of a table of so many columns.
std::vector<std::int64_t> sums_of_runs(const std::vector<std::int64_t>& numbers, std::size_t each);
std::vector<std::int64_t> sums_of_columns(const std::vector<std::int64_t>& numbers,
                                          std::size_t columns);

}  // namespace aisc
