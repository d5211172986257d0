// Products with a matrix of which only the elements that are not 0 are kept.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace aisc {

// Compressed sparse rows: the elements that are not 0, row by row. Row r has elements
// row_starts[r] .. row_starts[r + 1] of values and columns, in the order of their columns.
//
//   0 5 0      values      5 7 8
//   0 0 0  ->  columns     1 0 2
//   7 0 8      row_starts  0 1 1 3
//
// An element takes 8 bytes, twice those of a dense F32: below half of them gone it takes more.
struct SparseMatrix {
  std::int64_t rows = 0, columns_count = 0;
  std::vector<float> values;
  std::vector<std::int32_t> columns;
  std::vector<std::int32_t> row_starts;  // (rows + 1)

  std::int64_t count() const { return static_cast<std::int64_t>(values.size()); }
  std::int64_t bytes() const { return 8 * count() + 4 * (rows + 1); }
};

// Of a dense one (rows, columns), on the host. Throws Error for sizes that do not fit together, and
// for more elements than an I32 counts.
SparseMatrix sparse_of(std::span<const float> dense, std::int64_t rows, std::int64_t columns);
// The other way round: (rows, columns).
std::vector<float> dense_of(const SparseMatrix& matrix);

// y (N, O) = x (N, I) weight^T + bias, weight (O, I), bias (O) or empty, as Linear does: 2 FLOPs
// for each element that is kept, and each of N rows. The sums of a row of x do not depend on the
// number of threads. Throws Error for sizes that do not fit together.
void sparse_linear(std::span<float> y, std::span<const float> x, const SparseMatrix& weight,
                   std::span<const float> bias = {});

}  // namespace aisc
