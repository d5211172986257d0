// BF16 by BFMMLA: one instruction adds the product of 2 x 4 and 4 x 2 numbers to 2 x 2 sums in F32,
// 32 FLOPs where FMLA does 8.
#include <bit>
#include <cstring>

#include "common/core/system/machine.h"
#include "common/ops/cpu/blocked_product.h"
#include "common/ops/cpu/products.h"

namespace aisc::cpu {

#if defined(__aarch64__)
namespace {

using Halves [[gnu::vector_size(16), gnu::may_alias]] = std::uint16_t;  // 2 x 4 numbers in BF16
using Floats [[gnu::vector_size(16), gnu::may_alias]] = float;          // 2 x 2 sums

// sums += left (2, 4) right (2, 4)^T
void multiply_add(Floats& sums, Halves left, Halves right) {
  asm(".arch_extension bf16\n\tbfmmla %0.4s, %1.8h, %2.8h" : "+w"(sums) : "w"(left), "w"(right));
}

constexpr std::int64_t pairs(std::int64_t count) { return (count + 1) / 2; }
constexpr std::int64_t quads(std::int64_t count) { return (count + 3) / 4; }

// Of a factor whose next row is `row_step` elements on and whose next k `k_step`, one of them 1.
struct Packing {
  const BFloat16* x;
  std::int64_t row_step, k_step;

  // Two rows and four k from (row, k) on, all there.
  Halves whole(std::int64_t row, std::int64_t k) const {
    const BFloat16* from = x + row * row_step + k * k_step;
    BFloat16 eight[8];
    if (k_step == 1) {
      std::memcpy(eight, from, 8);
      std::memcpy(eight + 4, from + row_step, 8);
      return std::bit_cast<Halves>(eight);
    }
    for (int i = 0; i < 4; ++i) std::memcpy(eight + 2 * i, from + i * k_step, 4);
    const auto by_k = std::bit_cast<Halves>(eight);
    return __builtin_shufflevector(by_k, by_k, 0, 2, 4, 6, 1, 3, 5, 7);
  }
  // The same at the edge: 0 beyond it.
  Halves edge(std::int64_t row, std::int64_t k, std::int64_t rows, std::int64_t depth) const {
    BFloat16 eight[8] = {};
    for (int i = 0; i < 8; ++i)
      if (row + i / 4 < rows && k + i % 4 < depth)
        eight[i] = x[(row + i / 4) * row_step + (k + i % 4) * k_step];
    return std::bit_cast<Halves>(eight);
  }
  // A vector for each two rows and four k: to[pair * quads(depth) + quad].
  void pack(Halves* to, std::int64_t rows, std::int64_t depth) const {
    for (std::int64_t row = 0; row < rows; row += 2)
      for (std::int64_t k = 0; k < depth; k += 4)
        *to++ = row + 2 <= rows && k + 4 <= depth ? whole(row, k) : edge(row, k, rows, depth);
  }
};

// R x C squares of sums stay in registers: per quad of k, R + C loads feed R * C instructions.
template <int R, int C>
void add_squares(Floats* sums, std::int64_t stride, const Halves* left, const Halves* right,
                 std::int64_t depth) {
  Floats kept[R][C];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) kept[r][c] = sums[r * stride + c];
  for (std::int64_t k = 0; k < depth; ++k) {
    Halves columns[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) columns[c] = right[c * depth + k];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const Halves row = left[r * depth + k];
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) multiply_add(kept[r][c], row, columns[c]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) sums[r * stride + c] = kept[r][c];
}

class MatrixBlock {
 public:
  using Sum = float;

  MatrixBlock(std::int64_t rows, std::int64_t columns) : rows_(rows), columns_(columns) {
    std::fill(sums_, sums_ + pairs(rows) * kStride, Floats{});
  }
  void add(const Factor<BFloat16>& left, const Factor<BFloat16>& right, std::int64_t depth) {
    Packing{left.data, left.row, left.column}.pack(left_, rows_, depth);
    Packing{right.data, right.column, right.row}.pack(right_, columns_, depth);
    constexpr std::int64_t kSquares = 4;  // 16 sums + 4 + 1 of 32 registers
    const std::int64_t rows = pairs(rows_), columns = pairs(columns_), steps = quads(depth);
    for (std::int64_t r = 0; r < rows; r += kSquares)
      for (std::int64_t c = 0; c < columns; c += kSquares) {
        Floats* sums = sums_ + r * kStride + c;
        const Halves *rows_of = left_ + r * steps, *columns_of = right_ + c * steps;
        if (r + kSquares <= rows && c + kSquares <= columns) {
          add_squares<kSquares, kSquares>(sums, kStride, rows_of, columns_of, steps);
          continue;
        }
        for (std::int64_t i = 0; i < std::min(kSquares, rows - r); ++i)
          for (std::int64_t j = 0; j < std::min(kSquares, columns - c); ++j)
            add_squares<1, 1>(sums + i * kStride + j, kStride, rows_of + i * steps,
                              columns_of + j * steps, steps);
      }
  }
  float at(std::int64_t i, std::int64_t j) const {
    return sums_[i / 2 * kStride + j / 2][i % 2 * 2 + j % 2];
  }

 private:
  static constexpr std::int64_t kStride = pairs(kBlockColumns);
  const std::int64_t rows_, columns_;
  Floats sums_[pairs(kBlockRows) * kStride];
  Halves left_[pairs(kBlockRows) * quads(kBlockDepth)];
  Halves right_[pairs(kBlockColumns) * quads(kBlockDepth)];
};

}  // namespace

bool runs_matrix_product() { return bf16_dot_is_fast(); }

void matrix_product(View out, ConstView a, ConstView b, const ops::MatmulOptions& options) {
  if (out.dtype() == DType::F32)
    blocked_product<BFloat16, float, MatrixBlock>(out, a, b, options);
  else
    blocked_product<BFloat16, BFloat16, MatrixBlock>(out, a, b, options);
}

#else
bool runs_matrix_product() { return false; }
void matrix_product(View out, ConstView a, ConstView b, const ops::MatmulOptions& options) {
  plain_product(out, a, b, options);
}
#endif

}  // namespace aisc::cpu
