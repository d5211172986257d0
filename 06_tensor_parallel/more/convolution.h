// A convolution of images and its two gradients, of whole images or of parts of them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/ops/ops.h"

namespace aisc {

// Rows and columns of zeros around x. Negative: so many rows or columns of x are not looked at.
struct Padding {
  std::int64_t top = 0, bottom = 0, left = 0, right = 0;
};

struct ConvolutionOptions {
  std::int64_t row_stride = 1, column_stride = 1;  // at least 1
  Padding padding{};
};

// Outputs along one dimension: (size + before + after - filter) / stride + 1, and 0 where the
// filter does not fit.
inline std::int64_t convolved_size(std::int64_t size, std::int64_t filter, std::int64_t stride,
                                   std::int64_t before, std::int64_t after) {
  const std::int64_t way = size + before + after - filter;
  return way < 0 ? 0 : way / stride + 1;
}

// One dimension of a convolution: output i reads with tap a of the filter element
// i * stride - before + a of x, if x has it. `before` is the padding there, top or left.
struct ConvolutionAxis {
  std::int64_t size, filter, stride, before, outputs;

  std::int64_t read(std::int64_t output, std::int64_t tap) const {
    return output * stride - before + tap;
  }
  // The first output that reads `element` or one behind it with this tap; at most `outputs`.
  std::int64_t first_from(std::int64_t element, std::int64_t tap) const {
    const std::int64_t way = element + before - tap;
    return way <= 0 ? 0 : std::min(outputs, (way + stride - 1) / stride);
  }
  // The output that reads `element` with this tap; -1: none.
  std::int64_t output_of(std::int64_t element, std::int64_t tap) const {
    const std::int64_t way = element + before - tap;
    return way >= 0 && way % stride == 0 && way / stride < outputs ? way / stride : -1;
  }
  // Those that read an element of x with this tap: [first, last).
  std::int64_t first(std::int64_t tap) const { return first_from(0, tap); }
  std::int64_t last(std::int64_t tap) const { return first_from(size, tap); }
};

// x (N, C, H, W), filters (F, C, A, B) and y (N, F, I, J) with I and J from convolved_size(). With
// strides s, t:
//
//   y[n, f, i, j] = sum over c, a, b of  x[n, c, s i - top + a, t j - left + b] filters[f, c, a, b]
//
// where x is 0 outside. As all frameworks do, this does not turn the filter around.
//
// F32 or F64, all of one type; sums are kept in it. Each output is the sum of its own terms in the
// order of c, a, b, whatever else is computed beside it, and zeros of the padding are left out. So
// a part of y, computed from the part of x that it reads, has the bits that it has in the whole.
//
// On the CPU alone: on a GPU each throws Error. Without numbers (meta) time passes and nothing is
// computed. Costs 2 N F I J C A B FLOPs, as each gradient does. Throws Error for shapes and types
// that do not fit.
void convolution(View y, ConstView x, ConstView filters, const ConvolutionOptions& options = {});

// dx[n, c, h, w] = sum over f, a, b, in this order, of  dy[n, f, i, j] filters[f, c, a, b]
// for the i and j with s i - top + a = h and t j - left + b = w. dy may have 0 rows or columns.
void convolution_input_gradient(View dx, ConstView dy, ConstView filters,
                                const ConvolutionOptions& options = {});

// dfilters[f, c, a, b] = [dfilters +] sum over n, i, j of
//   dy[n, f, i, j] x[n, c, s i - top + a, t j - left + b]
// Rows are summed in their type, and the sums of rows in F64.
void convolution_filter_gradient(View dfilters, ConstView dy, ConstView x,
                                 const ConvolutionOptions& options = {},
                                 ops::Into into = ops::Into::Overwrite);

}  // namespace aisc
