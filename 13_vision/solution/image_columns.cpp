#include "13_vision/image_columns.h"

#include <fmt/format.h>

#include <algorithm>

#include "13_vision/of_type.h"
#include "common/ops/cpu/parallel.h"

namespace aisc {
namespace {

using Index = std::int64_t;

void require_patches(const char* operation, const ConstView& x, const ConstView& patches,
                     const PatchSizes& s) {
  const Shape expected{s.terms(), x.shape()[0] * s.outputs()};
  if (patches.shape() == expected && patches.dtype() == x.dtype()) return;
  fail(fmt::format("{}: patches are {} {}, expected {} {}", operation, patches.shape().to_string(),
                   name_of(patches.dtype()), expected.to_string(), name_of(x.dtype())));
}

// The part of a patch's row that tap (a, b) reads in output row i: outputs first .. last of it have
// elements of x, which begin at `from` in row h and are `stride` apart.
struct TapRow {
  Index h, first, last, from, stride;

  TapRow(const PatchSizes& s, Index a, Index b, Index i)
      : h(s.rows.read(i, a)),
        first(s.columns.first(b)),
        last(s.columns.last(b)),
        from(s.columns.read(first, b)),
        stride(s.columns.stride) {
    if (h < 0 || h >= s.rows.size) last = first = 0;
  }
};

}  // namespace

PatchSizes patch_sizes(const char* operation, ConstView x, const Shape& filters,
                       const ConvolutionOptions& options) {
  require_images(operation, x);
  if (filters.rank() != 4 || filters[1] != x.shape()[1])
    fail(fmt::format("{}: filters are {}, expected (F, {}, A, B) for x of {}", operation,
                     filters.to_string(), x.shape()[1], x.shape().to_string()));
  if (options.row_stride < 1 || options.column_stride < 1)
    fail(fmt::format("{}: strides are {} and {}, expected 1 or more", operation, options.row_stride,
                     options.column_stride));
  const auto axis = [&](int d, Index stride, Index before, Index after) {
    const Index size = x.shape()[d], filter = filters[d];
    const Index outputs = convolved_size(size, filter, stride, before, after);
    if (filter < 1 || outputs < 1)
      fail(fmt::format("{}: a filter of {} does not fit into {} elements, {} before and {} behind",
                       operation, filter, size, before, after));
    return ConvolutionAxis{size, filter, stride, before, outputs};
  };
  const Padding& p = options.padding;
  return {x.shape()[1], axis(2, options.row_stride, p.top, p.bottom),
          axis(3, options.column_stride, p.left, p.right)};
}

void image_to_columns(View patches, ConstView x, const PatchSizes& s) {
  require_patches("image_to_columns", x, patches, s);
  of_type(x.dtype(), [&](auto type) {
    using T = decltype(type);
    T* const out = patches.data<T>();
    const T* const in = x.data<T>();
    const Index N = x.shape()[0], A = s.rows.filter, B = s.columns.filter;
    const Index I = s.rows.outputs, J = s.columns.outputs;
    // A piece is what one tap (c, a, b) reads of one image: I J neighbours in a row of patches.
    cpu::parallel_rows(s.terms() * N, I * J, [=](Index piece) {
      const Index tap = piece / N, n = piece % N;
      const Index c = tap / B / A, a = tap / B % A, b = tap % B;
      T* to = out + piece * I * J;
      const T* const image = in + (n * s.C + c) * s.rows.size * s.columns.size;
      for (Index i = 0; i < I; ++i, to += J) {
        const TapRow row(s, a, b, i);
        const T* const from = image + row.h * s.columns.size + row.from;
        std::fill(to, to + row.first, T{});
        for (Index j = row.first; j < row.last; ++j) to[j] = from[(j - row.first) * row.stride];
        std::fill(to + row.last, to + J, T{});
      }
    });
  });
}

void columns_to_image(View dx, ConstView dpatches, const PatchSizes& s) {
  require_patches("columns_to_image", dx, dpatches, s);
  of_type(dx.dtype(), [&](auto type) {
    using T = decltype(type);
    T* const out = dx.data<T>();
    const T* const in = dpatches.data<T>();
    const Index N = dx.shape()[0], A = s.rows.filter, B = s.columns.filter;
    const Index I = s.rows.outputs, J = s.columns.outputs, HW = s.rows.size * s.columns.size;
    // A thread has channels of images to itself, and adds up what the A B taps read of each.
    cpu::parallel_rows(N * s.C, A * B * I * J, [=](Index channel) {
      const Index n = channel / s.C, c = channel % s.C;
      T* const image = out + channel * HW;
      std::fill_n(image, HW, T{});
      for (Index a = 0; a < A; ++a)
        for (Index b = 0; b < B; ++b) {
          const T* from = in + (((c * A + a) * B + b) * N + n) * I * J;
          for (Index i = 0; i < I; ++i, from += J) {
            const TapRow row(s, a, b, i);
            T* const to = image + row.h * s.columns.size + row.from;
            for (Index j = row.first; j < row.last; ++j)
              to[(j - row.first) * row.stride] += from[j];
          }
        }
    });
  });
}

}  // namespace aisc
