// Convolutions as products of matrices: every patch that a filter looks at becomes a column, and
// the filters, a row each, meet all patches in one product (Chellapilla, Puri, Simard, "High
// performance convolutional neural networks for document processing", 2006).
//
// 06's convolution says the same sums as loops, which keep the order of terms and so the bits that
// its tests of split images need; a network trains many times as fast on ops::matmul, which is
// oneDNN's. The price is memory: an element of x is in as many columns as filters look at it, 9 for
// 3 x 3. So columns are made anew in backward, and not kept.
#pragma once

#include "06_tensor_parallel/more/convolution.h"

namespace aisc {

// What a convolution does to sizes: x (N, C, rows.size, columns.size), filters (F, C, A, B), and of
// y (N, F, I, J) the I and J.
struct PatchSizes {
  std::int64_t C;
  ConvolutionAxis rows, columns;

  std::int64_t terms() const { return C * rows.filter * columns.filter; }  // of an output: C A B
  std::int64_t outputs() const { return rows.outputs * columns.outputs; }  // of a filter: I J
};

// Throws Error, which begins with `operation`, unless x and filters have four dimensions and C in
// common, the type of both is F32 or F64, both lie on the CPU, strides are at least 1, and the
// filter fits into x with its padding.
PatchSizes patch_sizes(const char* operation, ConstView x, const Shape& filters,
                       const ConvolutionOptions& options);

// patches (C A B, N I J):  patches[(c, a, b), (n, i, j)] = x[n, c, s i - top + a, t j - left + b],
// 0 where x has no such element.
void image_to_columns(View patches, ConstView x, const PatchSizes& sizes);
// Its gradient: each element of dx (N, C, H, W) is the sum of dpatches where it was copied to.
void columns_to_image(View dx, ConstView dpatches, const PatchSizes& sizes);

}  // namespace aisc
