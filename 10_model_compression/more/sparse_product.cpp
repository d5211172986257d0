#include "10_model_compression/more/sparse_product.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "common/core/error.h"
#include "common/core/range.h"
#include "common/ops/cpu/lanes.h"
#include "common/ops/cpu/parallel.h"

namespace aisc {
namespace {

// Vectors of sums of a row of weights, all in registers. Four hide most of the latency of an
// addition, and leave a tile of x small enough for a core's second cache.
constexpr int kVectors = 4;
constexpr std::int64_t kSumLanes = cpu::kTileLanes<float>;

// Columns of x or of y that are moved together: a cache line of each row. Rows are often a multiple
// of 4 KiB apart, and a column alone, line by line, would push itself out of the cache.
constexpr std::int64_t kLine = 16;

// Rows of x (n, I) side by side, (I, width), with zeros behind the n <= width numbers of a column.
void set_side_by_side(const float* x, std::int64_t n, std::int64_t I, std::int64_t width,
                      float* tile) {
  cpu::parallel_pieces(I, width, kLine, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t first = begin; first < end; first += kLine)
      for (std::int64_t t = 0; t < width; ++t)
        for (std::int64_t i = first; i < std::min(first + kLine, end); ++i)
          tile[i * width + t] = t < n ? x[t * I + i] : 0;
  });
}

// Vectors in memory, wherever they begin.
using SumLanesAt
    [[gnu::vector_size(cpu::kTileShape.vector_bytes), gnu::aligned(4), gnu::may_alias]] = float;

// A row of weights times V vectors of rows of x. Of each column these lie side by side: an element
// of the row, wherever it stands, reads one run of memory, and nothing is searched for.
template <int V>
void row_times_tile(const SparseMatrix& weight, std::int64_t row, float* tile, float bias,
                    float* out) {
  cpu::Lanes<float> sums[V];
  for (auto& sum : sums) sum = cpu::all_lanes(bias);
  const std::int32_t end = weight.row_starts[index(row + 1)];
  for (std::int32_t k = weight.row_starts[index(row)]; k < end; ++k) {
    const float w = weight.values[index(k)];
    float* x = tile + weight.columns[index(k)] * V * kSumLanes;
    for (int v = 0; v < V; ++v)
      sums[v] += w * *reinterpret_cast<const SumLanesAt*>(x + v * kSumLanes);
  }
  for (int v = 0; v < V; ++v) *reinterpret_cast<SumLanesAt*>(out + v * kSumLanes) = sums[v];
}

// About as many additions as a row of weights costs, for each row of x. Threads have equally many
// rows: pruning of a whole matrix leaves rows of about the same length.
std::int64_t cost_of_row(const SparseMatrix& weight) { return 1 + weight.count() / weight.rows; }

// n <= V vectors of rows of x.
template <int V>
void linear_of_tile(float* y, const float* x, std::int64_t n, const SparseMatrix& weight,
                    std::span<const float> bias, std::vector<float>& tile) {
  const std::int64_t O = weight.rows, I = weight.columns_count, width = V * kSumLanes;
  tile.resize(index(I * width));
  set_side_by_side(x, n, I, width, tile.data());
  const auto rows = [=, &weight, columns = tile.data()](std::int64_t begin, std::int64_t end) {
    float out[kLine * V * kSumLanes];
    for (std::int64_t first = begin; first < end; first += kLine) {
      const std::int64_t count = std::min(kLine, end - first);
      for (std::int64_t o = 0; o < count; ++o)
        row_times_tile<V>(weight, first + o, columns, bias.empty() ? 0.f : bias[index(first + o)],
                          out + o * width);
      for (std::int64_t t = 0; t < n; ++t)
        for (std::int64_t o = 0; o < count; ++o) y[t * O + first + o] = out[o * width + t];
    }
  };
  cpu::parallel_pieces(O, width * cost_of_row(weight), kLine, rows);
}

// A single row of x, whose elements are picked where the columns say: one by one, which costs less
// than a gather, but into several sums, none of which waits for the one before it.
void linear_of_row(float* y, const float* x, const SparseMatrix& weight,
                   std::span<const float> bias) {
  constexpr std::int64_t kSums = 8;
  cpu::parallel_rows(weight.rows, cost_of_row(weight), [=, &weight](std::int64_t o) {
    const std::int64_t begin = weight.row_starts[index(o)];
    const std::int64_t count = weight.row_starts[index(o + 1)] - begin;
    const float* const values = weight.values.data() + begin;
    const std::int32_t* const columns = weight.columns.data() + begin;
    float sums[kSums] = {};
    std::int64_t k = 0;
    for (; k + kSums <= count; k += kSums)
      for (std::int64_t i = 0; i < kSums; ++i) sums[i] += values[k + i] * x[columns[k + i]];
    for (; k < count; ++k) sums[k % kSums] += values[k] * x[columns[k]];
    y[o] = std::accumulate(sums, sums + kSums, bias.empty() ? 0.f : bias[index(o)]);
  });
}

}  // namespace

SparseMatrix sparse_of(std::span<const float> dense, std::int64_t rows, std::int64_t columns) {
  if (rows * columns > std::numeric_limits<std::int32_t>::max())
    fail(fmt::format("a sparse matrix of {} elements: at most {} expected, which an I32 counts",
                     rows * columns, std::numeric_limits<std::int32_t>::max()));
  if (std::ssize(dense) != rows * columns)
    fail(fmt::format("a sparse matrix of {} rows and {} columns: found {} elements, expected {}",
                     rows, columns, dense.size(), rows * columns));
  SparseMatrix matrix{.rows = rows, .columns_count = columns};
  matrix.row_starts.push_back(0);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c)
      if (const float w = dense[index(r * columns + c)]; w != 0) {
        matrix.values.push_back(w);
        matrix.columns.push_back(static_cast<std::int32_t>(c));
      }
    matrix.row_starts.push_back(static_cast<std::int32_t>(matrix.count()));
  }
  return matrix;
}

std::vector<float> dense_of(const SparseMatrix& matrix) {
  std::vector<float> dense(index(matrix.rows * matrix.columns_count));
  for (std::int64_t r = 0; r < matrix.rows; ++r)
    for (std::int32_t k = matrix.row_starts[index(r)]; k < matrix.row_starts[index(r + 1)]; ++k)
      dense[index(r * matrix.columns_count + matrix.columns[index(k)])] = matrix.values[index(k)];
  return dense;
}

void sparse_linear(std::span<float> y, std::span<const float> x, const SparseMatrix& weight,
                   std::span<const float> bias) {
  const std::int64_t O = weight.rows, I = weight.columns_count;
  const std::int64_t N = O > 0 ? std::ssize(y) / O : 0;
  if (std::ssize(y) != N * O || (O > 0 && std::ssize(x) != N * I) ||
      (!bias.empty() && std::ssize(bias) != O))
    fail(
        fmt::format("a sparse product with {} rows and {} columns: found y of {}, x of {} and bias "
                    "of {} elements, expected as many rows of y and x, and a number for each row",
                    O, I, y.size(), x.size(), bias.size()));
  std::vector<float> tile;
  for (std::int64_t n = 0; n < N;) {
    const std::int64_t count = std::min(N - n, kVectors * kSumLanes);
    float* const its_y = y.data() + n * O;
    const float* const its_x = x.data() + n * I;
    if (count == 1)
      linear_of_row(its_y, its_x, weight, bias);
    else if (count <= kSumLanes)
      linear_of_tile<1>(its_y, its_x, count, weight, bias, tile);
    else
      linear_of_tile<kVectors>(its_y, its_x, count, weight, bias, tile);
    n += count;
  }
}

}  // namespace aisc
