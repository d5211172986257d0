// The public operations of routers, which choose some columns of each row, as ops.cpp has the
// others: the choice, what is taken and given back, and the weights of what was chosen.
#include "common/ops/costs.h"
#include "common/ops/kernels.h"
#include "common/ops/ops.h"
#include "common/ops/ops_checks.h"

namespace aisc::ops {

void row_dots(View dots, ConstView a, ConstView b) {
  const Checks checks("row_dots", "a", a);
  checks.rank("a", a, 2);
  checks.is("b", b, a.shape(), a.dtype());
  checks.is("dots", dots, {a.shape()[0]}, statistics_of(a.dtype()));
  checks.run(&Kernels::row_dots, costs::row_dots, dots, a, b);
}

void normalize_rows(View y, ConstView x) {
  const Checks checks("normalize_rows", "x", x);
  checks.rank("x", x, 2);
  checks.is("y", y, x.shape(), x.dtype());
  checks.run(&Kernels::normalize_rows, costs::normalize_rows, y, x);
}

void normalize_rows_backward(View dx, ConstView dy, ConstView y, ConstView x) {
  const Checks checks("normalize_rows_backward", "dy", dy);
  checks.rank("dy", dy, 2);
  checks.is("y", y, dy.shape(), dy.dtype());
  checks.is("x", x, dy.shape(), dy.dtype());
  checks.is("dx", dx, dy.shape(), dy.dtype());
  checks.run(&Kernels::normalize_rows_backward, costs::normalize_rows_backward, dx, dy, y, x);
}

void top_k(View ids, ConstView x) {
  const Checks checks("top_k", "x", x);
  checks.rank("x", x, 2);
  checks.rank("ids", ids, 2);
  const std::int64_t k = ids.shape()[1];
  checks.number("k", static_cast<double>(k), k >= 1 && k <= x.shape()[1], "1 to the columns of x");
  checks.is("ids", ids, {x.shape()[0], k}, DType::I32);
  checks.run(&Kernels::top_k, costs::top_k, ids, x);
}

void take_columns(View values, ConstView x, ConstView ids) {
  const Checks checks("take_columns", "x", x);
  checks.rank("x", x, 2);
  checks.rank("ids", ids, 2);
  checks.is("ids", ids, {x.shape()[0], ids.shape()[1]}, DType::I32);
  checks.is("values", values, ids.shape(), x.dtype());
  checks.run(&Kernels::take_columns, costs::take_columns, values, x, ids);
}

void take_columns_backward(View dx, ConstView dvalues, ConstView ids, Into into) {
  const Checks checks("take_columns_backward", "dvalues", dvalues);
  checks.rank("dvalues", dvalues, 2);
  checks.rank("dx", dx, 2);
  checks.is("ids", ids, dvalues.shape(), DType::I32);
  checks.is_or_f32("dx", dx, {dvalues.shape()[0], dx.shape()[1]}, dvalues.dtype());
  checks.run(&Kernels::take_columns_backward, costs::take_columns_backward, dx, dvalues, ids, into);
}

}  // namespace aisc::ops
