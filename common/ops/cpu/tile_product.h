// The product of two small tiles that lie in cache: what attention and the plain product are made
// of.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace aisc::cpu {

// A kernel keeps in registers rows * vectors sums, `vectors` vectors of columns, a factor and,
// without multiply-add instructions, a product; what does not fit goes to memory and back at every
// step of k. At least 8 sums hide the latency of two multiply-adds a cycle, 4 cycles each.
struct TileShape {
  std::int64_t vector_bytes;
  int vectors, rows;  // of a kernel, at most
};
#if defined(__AVX512F__)
inline constexpr TileShape kTileShape{64, 4, 6};  // of 32 registers: 24 + 4 + 1
#elif defined(__AVX__)
inline constexpr TileShape kTileShape{32, 2, 6};  // of 16 registers: 12 + 2 + 1 (+ 1 before AVX2)
#elif defined(__aarch64__)
// Of 32 registers 20 + 4 + 5: GCC loads the factors of all rows before it multiplies.
inline constexpr TileShape kTileShape{16, 4, 5};
#else
inline constexpr TileShape kTileShape{16, 2, 6};  // SSE2, of 16 registers: 12 + 2 + 1 + 1
#endif

// Lanes of a tile's vector of T. The columns of tiles are padded to a multiple of this.
template <class T>
inline constexpr std::int64_t kTileLanes = kTileShape.vector_bytes /
                                           static_cast<std::int64_t>(sizeof(T));

template <class T>
constexpr std::int64_t tile_padded(std::int64_t columns) {
  return (columns + kTileLanes<T> - 1) / kTileLanes<T> * kTileLanes<T>;
}

// A read-only tile whose element (row, k) is data[row * row_stride + k * k_stride]: with the
// strides exchanged it is the transposed tile.
template <class T>
struct TileLeft {
  const T* data;
  std::int64_t row_stride, k_stride;
};

// Whether a product is added to what is there, or overwrites it.
enum class TileSums { New, More };

namespace detail {

// The compiler's vector type; aligned(8) or less, since rows need not start on a vector's boundary.
template <class T>
struct TileVector {
  using type
      [[gnu::vector_size(kTileShape.vector_bytes), gnu::aligned(sizeof(T)), gnu::may_alias]] = T;
};

// R rows times V vectors of columns, all sums in registers: per step of k, V loads and R broadcasts
// feed R * V multiply-adds. What is in c already is added at the end, when it has had time to come.
// GCC 12 keeps the sums in registers only if the loops over them are unrolled early: hence the
// pragmas.
template <class T, int R, int V>
[[gnu::always_inline]] inline void tile_kernel(T* c, std::int64_t c_stride, TileLeft<T> a,
                                               const T* b, std::int64_t b_stride,
                                               std::int64_t depth, TileSums into) {
  using Vector = typename TileVector<T>::type;
  const auto write = [](T* row) { return reinterpret_cast<Vector*>(row); };
  Vector sums[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) sums[r][v] = Vector{};
  for (std::int64_t k = 0; k < depth; ++k, a.data += a.k_stride, b += b_stride) {
    Vector columns[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) columns[v] = reinterpret_cast<const Vector*>(b)[v];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const T factor = a.data[r * a.row_stride];
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sums[r][v] += factor * columns[v];
    }
  }
  if (into == TileSums::New) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r, c += c_stride)
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) write(c)[v] = sums[r][v];
  } else {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r, c += c_stride)
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) write(c)[v] += sums[r][v];
  }
}

// All columns of R rows. The strides are passed one by one: a struct of three words goes through
// memory, and to be read it would have to wait until the sums of the strip before are written.
template <class T, int R>
[[gnu::noinline]] void tile_strip(T* c, std::int64_t c_stride, const T* a, std::int64_t row_stride,
                                  std::int64_t k_stride, const T* b, std::int64_t b_stride,
                                  std::int64_t columns, std::int64_t depth, TileSums into) {
  constexpr std::int64_t kWidth = kTileLanes<T>;
  const TileLeft<T> left{a, row_stride, k_stride};
  std::int64_t j = 0;
  if constexpr (kTileShape.vectors >= 4)
    for (; j + 4 * kWidth <= columns; j += 4 * kWidth)
      tile_kernel<T, R, 4>(c + j, c_stride, left, b + j, b_stride, depth, into);
  for (; j + 2 * kWidth <= columns; j += 2 * kWidth)
    tile_kernel<T, R, 2>(c + j, c_stride, left, b + j, b_stride, depth, into);
  for (; j < columns; j += kWidth)
    tile_kernel<T, R, 1>(c + j, c_stride, left, b + j, b_stride, depth, into);
}

// By the number of rows, less one.
template <class T>
inline constexpr std::array kTileStrips{tile_strip<T, 1>, tile_strip<T, 2>, tile_strip<T, 3>,
                                        tile_strip<T, 4>, tile_strip<T, 5>, tile_strip<T, 6>};

}  // namespace detail

// Rows that are computed together: what a tile's rows are cut into.
inline constexpr std::int64_t kTileRows = kTileShape.rows;

// c (rows, columns) = [c +] a (rows, depth) b (depth, columns) for at most kTileRows rows, every
// sum over k in ascending order. `columns` is a multiple of kTileLanes<T>.
template <class T>
[[gnu::always_inline]] inline void strip_product(T* c, std::int64_t c_stride, TileLeft<T> a,
                                                 const T* b, std::int64_t b_stride,
                                                 std::int64_t rows, std::int64_t columns,
                                                 std::int64_t depth, TileSums into) {
  static_assert(detail::kTileStrips<T>.size() >= kTileRows);
  detail::kTileStrips<T>[static_cast<std::size_t>(rows - 1)](
      c, c_stride, a.data, a.row_stride, a.k_stride, b, b_stride, columns, depth, into);
}

// The same for any number of rows, added to what is in c.
template <class T>
inline void tile_product(T* c, std::int64_t c_stride, TileLeft<T> a, const T* b,
                         std::int64_t b_stride, std::int64_t rows, std::int64_t columns,
                         std::int64_t depth) {
  for (std::int64_t r = 0; r < rows; r += kTileRows, a.data += kTileRows * a.row_stride)
    strip_product<T>(c + r * c_stride, c_stride, a, b, b_stride, std::min(kTileRows, rows - r),
                     columns, depth, TileSums::More);
}

}  // namespace aisc::cpu
