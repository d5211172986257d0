#include "08_moe/runs.h"

#include <numeric>

namespace aisc {

Tensor transposed_runs(Tensor x, const std::vector<std::int64_t>& counts, std::size_t columns,
                       Transposed way) {
  const std::size_t rows = counts.size() / columns;
  if (rows == 1 || columns == 1) return x;
  std::vector<std::int64_t> begins(counts.size());  // of run (i, j) in the order of i
  std::exclusive_scan(counts.begin(), counts.end(), begins.begin(), std::int64_t{0});
  Tensor y(x.shape(), x.dtype(), x.device());
  const std::int64_t C = x.shape()[-1];
  std::int64_t by_column = 0;  // where the next run begins in the order of j
  for (std::size_t j = 0; j < columns; ++j)
    for (std::size_t i = 0; i < rows; ++i) {
      const std::int64_t count = counts[i * columns + j] * C, by_row = begins[i * columns + j] * C;
      const bool there = way == Transposed::There;
      if (count > 0)
        x.device().copy(y.view().flat(there ? by_column : by_row, count),
                        x.view().flat(there ? by_row : by_column, count));
      by_column += count;
    }
  return y;
}

std::vector<std::int64_t> sums_of_runs(const std::vector<std::int64_t>& numbers, std::size_t each) {
  std::vector<std::int64_t> sums(numbers.size() / each);
  for (std::size_t i = 0; i < numbers.size(); ++i) sums[i / each] += numbers[i];
  return sums;
}

std::vector<std::int64_t> sums_of_columns(const std::vector<std::int64_t>& numbers,
                                          std::size_t columns) {
  std::vector<std::int64_t> sums(columns);
  for (std::size_t i = 0; i < numbers.size(); ++i) sums[i % columns] += numbers[i];
  return sums;
}

}  // namespace aisc
