// im2col (Chellapilla, Puri and Simard, "High performance convolutional neural networks for
// document processing", 2006), of as many output rows as there is memory for.
#include "02_cpu_offload/more/convolution_workspace.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/core/error.h"
#include "common/ops/cpu/parallel.h"
#include "common/ops/ops_checks.h"

namespace aisc {
namespace {

// One sample: x (C, rows.size, columns.size), y (F, I, J).
struct Unfolding {
  std::int64_t C;
  ConvolutionAxis rows, columns;

  std::int64_t taps() const { return C * rows.filter * columns.filter; }
};

Unfolding checked_unfolding(const View& y, const ConstView& x, const ConstView& filters,
                            const ConvolutionOptions& o) {
  const ops::Checks checks("convolution_by_plan", "x", x);
  checks.rank("x", x, 4);
  checks.rank("filters", filters, 4);
  const std::int64_t C = x.shape()[1], F = filters.shape()[0];
  const auto axis = [&](int d, std::int64_t stride, std::int64_t before, std::int64_t after) {
    const std::int64_t size = x.shape()[d], taps = filters.shape()[d];
    checks.number("a stride", static_cast<double>(stride), stride >= 1, "at least 1");
    return ConvolutionAxis{size, taps, stride, before,
                           convolved_size(size, taps, stride, before, after)};
  };
  const Unfolding u{C, axis(2, o.row_stride, o.padding.top, o.padding.bottom),
                    axis(3, o.column_stride, o.padding.left, o.padding.right)};
  checks.is("filters", filters, {F, C, u.rows.filter, u.columns.filter}, x.dtype());
  checks.is("y", y, {x.shape()[0], F, u.rows.outputs, u.columns.outputs}, x.dtype());
  return u;
}

// matrix (C A B, count J) from x (C, H, W): its row (c, a, b) is what tap (a, b) of channel c reads
// for each of the outputs of rows first .. first + count - 1, and 0 outside of x.
template <class T>
void unfold(T* matrix, const T* x, const Unfolding& u, std::int64_t first, std::int64_t count) {
  const std::int64_t A = u.rows.filter, B = u.columns.filter, J = u.columns.outputs;
  cpu::parallel_rows(u.taps(), count * J, [=](std::int64_t row) {
    const std::int64_t c = row / B / A, a = row / B % A, b = row % B;
    const std::int64_t begin = u.columns.first(b), end = std::max(begin, u.columns.last(b));
    for (std::int64_t i = 0; i < count; ++i) {
      T* const to = matrix + (row * count + i) * J;
      const std::int64_t h = u.rows.read(first + i, a);
      if (h < 0 || h >= u.rows.size) {
        std::fill_n(to, J, T{});
        continue;
      }
      // Outputs begin .. end - 1 read elements that are there, `stride` apart.
      const T* const from = x + (c * u.rows.size + h) * u.columns.size + u.columns.read(begin, b);
      std::fill(to, to + begin, T{});
      for (std::int64_t j = begin; j < end; ++j) to[j] = from[(j - begin) * u.columns.stride];
      std::fill(to + end, to + J, T{});
    }
  });
}

void unfold(View matrix, ConstView x, const Unfolding& u, std::int64_t first, std::int64_t count) {
  Device& device = x.device();
  if (device.wants_costs())
    device.charge({.operation = "unfold",
                   .bytes = 2 * static_cast<double>(matrix.bytes()),
                   .dtype = x.dtype()});
  if (device.kind() == DeviceKind::Meta) return;
  if (x.dtype() == DType::F64)
    unfold(matrix.data<double>(), x.data<double>(), u, first, count);
  else
    unfold(matrix.data<float>(), x.data<float>(), u, first, count);
}

// Of `rows` rows of y at a time: their part of the matrix, and of y, unless they are all.
std::int64_t workspace_bytes(const ConstView& y, const ConstView& filters, std::int64_t rows) {
  const std::int64_t F = y.shape()[1], I = y.shape()[2], J = y.shape()[3];
  const std::int64_t taps = filters.shape()[1] * filters.shape()[2] * filters.shape()[3];
  const std::int64_t elements = (rows == I ? taps : taps + F) * rows * J;
  return elements * static_cast<std::int64_t>(size_of(y.dtype()));
}

}  // namespace

ConvolutionPlan plan_convolution(ConstView y, ConstView filters, std::int64_t free_bytes) {
  const ops::Checks checks("plan_convolution", "y", y);
  checks.rank("y", y, 4);
  checks.rank("filters", filters, 4);
  checks.number("free_bytes", static_cast<double>(free_bytes), free_bytes >= 0, "at least 0");
  const std::int64_t I = y.shape()[2], whole = workspace_bytes(y, filters, I);
  if (whole <= free_bytes) return {I, whole};
  std::int64_t rows = I - 1;
  while (rows > 0 && workspace_bytes(y, filters, rows) > free_bytes) --rows;
  return {rows, workspace_bytes(y, filters, rows)};
}

void convolution_by_plan(View y, ConstView x, ConstView filters, const ConvolutionPlan& plan,
                         const ConvolutionOptions& options) {
  if (plan.rows == 0) return convolution(y, x, filters, options);
  const Unfolding u = checked_unfolding(y, x, filters, options);
  const std::int64_t N = x.shape()[0], F = filters.shape()[0], taps = u.taps();
  const std::int64_t I = u.rows.outputs, J = u.columns.outputs;
  if (plan.rows < 0 || plan.rows > I)
    fail(fmt::format("convolution_by_plan: {} rows of {}, expected 0 to {}", plan.rows, I, I));
  if (const std::int64_t bytes = workspace_bytes(y, filters, plan.rows);
      bytes != plan.workspace_bytes)
    fail(fmt::format("convolution_by_plan: {} rows of {} in {} bytes, expected {}", plan.rows, I,
                     plan.workspace_bytes, bytes));
  Device& device = x.device();
  const Tensor workspace({plan.workspace_bytes / static_cast<std::int64_t>(size_of(x.dtype()))},
                         x.dtype(), device, Purpose::Workspace);
  const ConstView weights = filters.reshaped({F, taps});
  for (std::int64_t n = 0; n < N; ++n) {
    const ConstView sample = x.rows(n, n + 1);
    for (std::int64_t i = 0; i < I; i += plan.rows) {
      const std::int64_t rows = std::min(plan.rows, I - i), outputs = rows * J;
      const View matrix = workspace.view().flat(0, taps * outputs).reshaped({taps, outputs});
      unfold(matrix, sample, u, i, rows);
      if (rows == I) {
        ops::matmul(y.rows(n, n + 1).reshaped({F, outputs}), weights, matrix);
        continue;
      }
      const View part = workspace.view().flat(taps * outputs, F * outputs);
      ops::matmul(part.reshaped({F, outputs}), weights, matrix);  // (F, rows J)
      for (std::int64_t f = 0; f < F; ++f)
        device.copy(y.flat(((n * F + f) * I + i) * J, outputs), part.flat(f * outputs, outputs));
    }
  }
}

}  // namespace aisc
