// out = op(a) op(b) in blocks: both factors are packed into tiles that stay in cache, where
// transposing and widening happen on the way; the sums of a tile of `out` are kept in full
// precision over the whole depth and rounded once.
#include <algorithm>

#include "common/ops/cpu/blocked_product.h"
#include "common/ops/cpu/kernels.h"
#include "common/ops/cpu/products.h"
#include "common/ops/cpu/tile_product.h"

namespace aisc::cpu {
namespace {

// tile (rows, stride) = the first rows and columns of `x`; columns beyond `columns` become 0.
template <class S, class T>
void pack(S* tile, std::int64_t stride, const Factor<T>& x, std::int64_t rows,
          std::int64_t columns) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const T* from = x.data + i * x.row;
    S* to = tile + i * stride;
    for (std::int64_t j = 0; j < columns; ++j) to[j] = static_cast<S>(from[j * x.column]);
    std::fill(to + columns, to + stride, S(0));
  }
}

// Both packed factors stay in cache while every row of the one meets every column of the other.
template <class T>
class PlainBlock {
 public:
  using Sum = Accumulator<T>;

  PlainBlock(std::int64_t rows, std::int64_t columns)
      : rows_(rows), columns_(columns), stride_(tile_padded<Sum>(columns)) {
    std::fill(sums_, sums_ + rows_ * stride_, Sum(0));
  }
  void add(const Factor<T>& left, const Factor<T>& right, std::int64_t depth) {
    pack(left_, depth, left, rows_, depth);
    pack(right_, stride_, right, depth, columns_);
    tile_product<Sum>(sums_, stride_, {left_, depth, 1}, right_, stride_, rows_, stride_, depth);
  }
  Sum at(std::int64_t i, std::int64_t j) const { return sums_[i * stride_ + j]; }

 private:
  const std::int64_t rows_, columns_, stride_;
  alignas(64) Sum sums_[kBlockRows * kBlockColumns];
  alignas(64) Sum left_[kBlockRows * kBlockDepth];
  alignas(64) Sum right_[kBlockDepth * kBlockColumns];
};

}  // namespace

ProductSizes::ProductSizes(const View& out, const ConstView& a, ops::Transpose transpose)
    : batch(out.shape().rank() == 3 ? out.shape()[0] : 1),
      M(out.shape()[-2]),
      N(out.shape()[-1]),
      K(a.shape()[transpose == ops::Transpose::First ? -2 : -1]) {}

void plain_product(View out, ConstView a, ConstView b, const ops::MatmulOptions& options) {
  dispatch_or_f32(a.dtype(), out.dtype(), [&](auto type, auto out_type) {
    using T = decltype(type);
    blocked_product<T, decltype(out_type), PlainBlock<T>>(out, a, b, options);
  });
}

void matmul(View out, ConstView a, ConstView b, const ops::MatmulOptions& options) {
  if (out.count() == 0) return;
  if (options.before_gelu || options.gelu_of) {
    ops::MatmulOptions product = options;
    product.before_gelu = {};
    product.gelu_of = {};
    cpu::matmul(options.before_gelu ? options.before_gelu : out, a, b, product);
    if (options.before_gelu) return cpu::gelu(out, options.before_gelu, ops::Gelu::Tanh);
    return cpu::gelu_backward(out, out, options.gelu_of, ops::Gelu::Tanh);
  }
  const ProductSizes size(out, a, options.transpose);
  const bool is_row = size.batch == 1 && size.M == 1 && options.transpose == ops::Transpose::Second;
  const bool is_short = size_of(a.dtype()) < size_of(DType::F32);
  const bool ours_in_f32 = a.dtype() == DType::F32 && !library_has_f32(out.device());
  // In F32 the library's product of one row already takes no longer than reading the matrix. In F64
  // a row is summed in the same order alone and among others.
  if (is_row && (is_short || ours_in_f32))
    row_product(out, a, b, options);
  else if (a.dtype() == DType::BF16 && size.K > 0 && runs_matrix_product())
    matrix_product(out, a, b, options);
  else if (a.dtype() != DType::F64 && !ours_in_f32 && size.K > 0)
    library_product(out, a, b, options);
  else
    plain_product(out, a, b, options);
}

}  // namespace aisc::cpu
