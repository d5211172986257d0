// The public operations: each checks its arguments and hands them to the kernels of their device.
#include "common/ops/ops.h"

#include "common/core/error.h"
#include "common/ops/costs.h"
#include "common/ops/kernels.h"
#include "common/ops/ops_checks.h"

namespace aisc::ops {
namespace {

// Operations of one input and one output of the same count and type.
Checks check_pair(const char* operation, const char* out_name, const View& out, const char* in_name,
                  const ConstView& in) {
  const Checks checks(operation, in_name, in);
  checks.has(out_name, out, in.count(), in.dtype());
  return checks;
}

Checks check_triple(const char* operation, const char* out_name, const View& out,
                    const char* a_name, const ConstView& a, const char* b_name,
                    const ConstView& b) {
  const Checks checks(operation, a_name, a);
  checks.has(b_name, b, a.count(), a.dtype());
  checks.has(out_name, out, a.count(), a.dtype());
  return checks;
}

void check_state(const Checks& checks, const View& weight, const View& master,
                 const ConstView& gradient) {
  const DType dtype = weight.dtype();
  const std::int64_t n = weight.count();
  if (statistics_of(dtype) != dtype)
    checks.has("master", master, n, DType::F32);
  else
    checks.number("the length of master", static_cast<double>(master.count()), !master,
                  "none: the weight is its own master");
  checks.has("gradient", gradient, n,
             gradient && gradient.dtype() == DType::F32 ? DType::F32 : dtype);
}

// A part lies inside the whole.
void check_part(const Checks& checks, std::int64_t rows, const TablePart& part) {
  checks.number("part.begin", static_cast<double>(part.begin),
                part.all == 0 ? part.begin == 0 : part.begin >= 0 && part.begin + rows <= part.all,
                "that it and the rows here lie in part.all");
}

// What is smoothed is shared by all classes: a part would have to be told of the others.
void check_smoothing(const Checks& checks, double smoothing, const TablePart& part) {
  checks.number("smoothing", smoothing, smoothing >= 0 && smoothing < 1, "0 <= smoothing < 1");
  checks.number("smoothing", smoothing, smoothing == 0 || part.all == 0,
                "0 with a part of the classes");
}

}  // namespace

void matmul(View out, ConstView a, ConstView b, const MatmulOptions& options) {
  const Checks checks("matmul", "a", a);
  const int rank = a.shape().rank();
  checks.number("the rank of a", rank, rank == 2 || rank == 3, "2, or 3 with a batch");
  checks.rank("b", b, rank);
  const bool a_turned = options.transpose == Transpose::First;
  const bool b_turned = options.transpose == Transpose::Second;
  const std::int64_t M = a.shape()[a_turned ? -1 : -2], K = a.shape()[a_turned ? -2 : -1];
  const std::int64_t N = b.shape()[b_turned ? -2 : -1];
  // a's shape with other last dimensions: the batch, where there is one, is a's.
  const auto shape = [&](std::int64_t rows, std::int64_t columns) {
    return a.shape().with(-2, rows).with(-1, columns);
  };
  checks.is("b", b, b_turned ? shape(N, K) : shape(K, N), a.dtype());
  checks.is_or_f32("out", out, shape(M, N), a.dtype());
  if (options.bias) {
    checks.is("bias", options.bias, {N}, a.dtype());
    checks.number("the length of bias", static_cast<double>(N), options.into == Into::Overwrite,
                  "none together with Accumulate");
  }
  if (options.before_gelu || options.gelu_of) {
    const bool both = options.before_gelu && options.gelu_of;
    checks.number("the number of options with gelu", both ? 2 : 1, !both, "at most 1");
    checks.number("into", 1, options.into == Into::Overwrite,
                  "Overwrite with before_gelu or gelu_of");
    checks.is("out", out, shape(M, N), a.dtype());
    if (options.before_gelu)
      checks.is("before_gelu", options.before_gelu, out.shape(), a.dtype());
    else
      checks.is("gelu_of", options.gelu_of, out.shape(), a.dtype());
  }
  checks.run(&Kernels::matmul, costs::matmul, out, a, b, options);
}

void fill(View out, double value) {
  Checks("fill", "out", out).run(&Kernels::fill, costs::fill, out, value);
}

void cast(View out, ConstView x) {
  const Checks checks("cast", "x", x);
  checks.has("out", out, x.count(), out && is_floating(out.dtype()) ? out.dtype() : x.dtype());
  checks.run(&Kernels::cast, costs::cast, out, x);
}

void add(View out, ConstView a, ConstView b) {
  check_triple("add", "out", out, "a", a, "b", b).run(&Kernels::add, costs::add, out, a, b);
}

void scale(View out, ConstView x, double factor) {
  check_pair("scale", "out", out, "x", x).run(&Kernels::scale, costs::scale, out, x, factor);
}

void add_bias(View out, ConstView x, ConstView bias) {
  const Checks checks("add_bias", "x", x);
  checks.rank("x", x, 2);
  checks.is("bias", bias, {x.shape()[1]}, x.dtype());
  checks.is("out", out, x.shape(), x.dtype());
  checks.run(&Kernels::add_bias, costs::add_bias, out, x, bias);
}

void add_bias_backward(View dbias, ConstView dy, Into into) {
  const Checks checks("add_bias_backward", "dy", dy);
  checks.rank("dy", dy, 2);
  checks.is_or_f32("dbias", dbias, {dy.shape()[1]}, dy.dtype());
  checks.run(&Kernels::add_bias_backward, costs::add_bias_backward, dbias, dy, into);
}

void permute(View out, ConstView x, std::array<int, 4> order) {
  const Checks checks("permute", "x", x);
  const int rank = x.shape().rank();
  checks.number("the rank of x", rank, rank >= 2, "2 to 4");
  Shape permuted = x.shape();
  unsigned seen = 0;
  for (int d = 0; d < rank; ++d) {
    const int from = order[static_cast<std::size_t>(d)];
    checks.number("an entry of order", from, from >= 0 && from < rank && !(seen >> from & 1u),
                  "each dimension of x once");
    seen |= 1u << from;
    permuted = permuted.with(d, x.shape()[from]);
  }
  checks.is("out", out, permuted, x.dtype());
  checks.run(&Kernels::permute, costs::permute, out, x, order);
}

void relu(View y, ConstView x) {
  check_pair("relu", "y", y, "x", x).run(&Kernels::relu, costs::relu, y, x);
}

void relu_backward(View dx, ConstView dy, ConstView x) {
  check_triple("relu_backward", "dx", dx, "dy", dy, "x", x)
      .run(&Kernels::relu_backward, costs::relu_backward, dx, dy, x);
}

void gelu(View y, ConstView x, Gelu form) {
  check_pair("gelu", "y", y, "x", x).run(&Kernels::gelu, costs::gelu, y, x, form);
}

void gelu_backward(View dx, ConstView dy, ConstView x, Gelu form) {
  check_triple("gelu_backward", "dx", dx, "dy", dy, "x", x)
      .run(&Kernels::gelu_backward, costs::gelu_backward, dx, dy, x, form);
}

void sigmoid(View y, ConstView x) {
  check_pair("sigmoid", "y", y, "x", x).run(&Kernels::sigmoid, costs::sigmoid, y, x);
}

void sigmoid_backward(View dx, ConstView dy, ConstView y) {
  check_triple("sigmoid_backward", "dx", dx, "dy", dy, "y", y)
      .run(&Kernels::sigmoid_backward, costs::sigmoid_backward, dx, dy, y);
}

void dropout(View y, ConstView x, double rate, const Philox& random, std::uint64_t first_index,
             View mask) {
  const Checks checks("dropout", "x", x);
  checks.has("y", y, x.count(), x.dtype());
  checks.number("rate", rate, rate >= 0 && rate < 1, "0 <= rate < 1");
  if (mask) checks.has("mask", mask, x.count(), DType::U8);
  checks.run(&Kernels::dropout, costs::dropout, y, x, rate, random, first_index, mask);
}

void dropout_backward(View dx, ConstView dy, ConstView mask, double rate) {
  const Checks checks("dropout_backward", "dy", dy);
  checks.has("dx", dx, dy.count(), dy.dtype());
  checks.has("mask", mask, dy.count(), DType::U8);
  checks.number("rate", rate, rate >= 0 && rate < 1, "0 <= rate < 1");
  checks.run(&Kernels::dropout_backward, costs::dropout_backward, dx, dy, mask, rate);
}

void layer_norm(View y, View mean, View rstd, ConstView x, ConstView weight, ConstView bias,
                double epsilon) {
  const Checks checks("layer_norm", "x", x);
  checks.rank("x", x, 2);
  const std::int64_t N = x.shape()[0], C = x.shape()[1];
  checks.is("weight", weight, {C}, x.dtype());
  checks.is("bias", bias, {C}, x.dtype());
  checks.is("y", y, {N, C}, x.dtype());
  checks.is("mean", mean, {N}, statistics_of(x.dtype()));
  checks.is("rstd", rstd, {N}, statistics_of(x.dtype()));
  checks.run(&Kernels::layer_norm, costs::layer_norm, y, mean, rstd, x, weight, bias, epsilon);
}

void layer_norm_backward(View dx, View dweight, View dbias, ConstView dy, ConstView x,
                         ConstView weight, ConstView mean, ConstView rstd, Into weights_into) {
  const Checks checks("layer_norm_backward", "dy", dy);
  checks.rank("dy", dy, 2);
  const std::int64_t N = dy.shape()[0], C = dy.shape()[1];
  const DType dtype = dy.dtype();
  checks.is("x", x, {N, C}, dtype);
  checks.is("weight", weight, {C}, dtype);
  checks.is("mean", mean, {N}, statistics_of(dtype));
  checks.is("rstd", rstd, {N}, statistics_of(dtype));
  checks.is("dx", dx, {N, C}, dtype);
  checks.is_or_f32("dweight", dweight, {C}, dtype);
  checks.is("dbias", dbias, {C}, dweight.dtype());
  checks.run(&Kernels::layer_norm_backward, costs::layer_norm_backward, dx, dweight, dbias, dy, x,
             weight, mean, rstd, weights_into);
}

void scale_rows(View y, ConstView x, ConstView factors, Into into) {
  const Checks checks("scale_rows", "x", x);
  checks.rank("x", x, 2);
  checks.is("factors", factors, {x.shape()[0]}, statistics_of(x.dtype()));
  checks.is_or_f32("y", y, x.shape(), x.dtype());
  checks.run(&Kernels::scale_rows, costs::scale_rows, y, x, factors, into);
}

void softmax(View y, ConstView x) {
  const Checks checks("softmax", "x", x);
  checks.number("the rank of x", x.shape().rank(), x.shape().rank() >= 1, "1 to 4");
  checks.is("y", y, x.shape(), x.dtype());
  checks.run(&Kernels::softmax, costs::softmax, y, x);
}

void softmax_backward(View dx, ConstView dy, ConstView y) {
  const Checks checks("softmax_backward", "dy", dy);
  checks.number("the rank of dy", dy.shape().rank(), dy.shape().rank() >= 1, "1 to 4");
  checks.is("y", y, dy.shape(), dy.dtype());
  checks.is("dx", dx, dy.shape(), dy.dtype());
  checks.run(&Kernels::softmax_backward, costs::softmax_backward, dx, dy, y);
}

void embedding(View out, ConstView table, ConstView ids, Into into, TablePart part) {
  const Checks checks("embedding", "table", table);
  checks.rank("table", table, 2);
  checks.rank("ids", ids, 1);
  checks.is("ids", ids, ids.shape(), DType::I32);
  checks.is("out", out, {ids.count(), table.shape()[1]}, table.dtype());
  check_part(checks, table.shape()[0], part);
  checks.run(&Kernels::embedding, costs::embedding, out, table, ids, into, part);
}

void token_positions(View ids, const TokenRuns& runs) {
  if (!ids || ids.shape().rank() != 2 || ids.dtype() != DType::I32)
    fail("token_positions: ids must be a (B, T) tensor of I32");
  charge(ids.device(), "token_positions", costs::token_positions, ids, runs);
  kernels_of(ids.device()).token_positions(ids, runs);
}

void embedding_backward(View dtable, ConstView dout, ConstView ids, Into into, TablePart part) {
  const Checks checks("embedding_backward", "dout", dout);
  checks.rank("dout", dout, 2);
  checks.rank("dtable", dtable, 2);
  checks.is("ids", ids, {dout.shape()[0]}, DType::I32);
  checks.is_or_f32("dtable", dtable, {dtable.shape()[0], dout.shape()[1]}, dout.dtype());
  check_part(checks, dtable.shape()[0], part);
  checks.run(&Kernels::embedding_backward, costs::embedding_backward, dtable, dout, ids, into,
             part);
}

void cross_entropy(View losses, View log_sum_exp, ConstView logits, ConstView targets,
                   std::int64_t classes, TablePart part, double smoothing) {
  const Checks checks("cross_entropy", "logits", logits);
  checks.rank("logits", logits, 2);
  const std::int64_t N = logits.shape()[0], V = logits.shape()[1];
  checks.number("classes", static_cast<double>(classes),
                classes >= (part.all == 0 ? 1 : 0) && classes <= V, "1 to the columns of logits");
  checks.is("targets", targets, {N}, DType::I32);
  checks.is("losses", losses, {N}, statistics_of(logits.dtype()));
  checks.is("log_sum_exp", log_sum_exp, {N}, statistics_of(logits.dtype()));
  check_part(checks, classes, part);
  check_smoothing(checks, smoothing, part);
  checks.run(&Kernels::cross_entropy, costs::cross_entropy, losses, log_sum_exp, logits, targets,
             classes, part, smoothing);
}

void cross_entropy_backward(View dlogits, ConstView logits, ConstView log_sum_exp,
                            ConstView targets, std::int64_t classes, double factor, TablePart part,
                            double smoothing) {
  const Checks checks("cross_entropy_backward", "logits", logits);
  checks.rank("logits", logits, 2);
  const std::int64_t N = logits.shape()[0], V = logits.shape()[1];
  checks.number("classes", static_cast<double>(classes),
                classes >= (part.all == 0 ? 1 : 0) && classes <= V, "1 to the columns of logits");
  checks.is("targets", targets, {N}, DType::I32);
  checks.is("log_sum_exp", log_sum_exp, {N}, statistics_of(logits.dtype()));
  checks.is("dlogits", dlogits, {N, V}, logits.dtype());
  check_part(checks, classes, part);
  check_smoothing(checks, smoothing, part);
  checks.run(&Kernels::cross_entropy_backward, costs::cross_entropy_backward, dlogits, logits,
             log_sum_exp, targets, classes, factor, part, smoothing);
}

double sum_of_squares(ConstView x) {
  return Checks("sum_of_squares", "x", x).run(&Kernels::sum_of_squares, costs::sum_of_squares, x);
}

void adamw(View weight, View master, View m, View v, ConstView gradient, const AdamWStep& step) {
  const Checks checks("adamw", "weight", weight);
  check_state(checks, weight, master, gradient);
  checks.has("m", m, weight.count(), statistics_of(weight.dtype()));
  checks.has("v", v, weight.count(), statistics_of(weight.dtype()));
  checks.number("step", static_cast<double>(step.step), step.step >= 1, "at least 1");
  checks.number("beta1", step.beta1, step.beta1 >= 0 && step.beta1 < 1, "0 <= beta1 < 1");
  checks.number("beta2", step.beta2, step.beta2 >= 0 && step.beta2 < 1, "0 <= beta2 < 1");
  checks.run(&Kernels::adamw, costs::adamw, weight, master, m, v, gradient, step);
}

void sgd(View weight, View master, View velocity, ConstView gradient, const SgdStep& step) {
  const Checks checks("sgd", "weight", weight);
  check_state(checks, weight, master, gradient);
  if (velocity || step.momentum != 0)
    checks.has("velocity", velocity, weight.count(), statistics_of(weight.dtype()));
  checks.run(&Kernels::sgd, costs::sgd, weight, master, velocity, gradient, step);
}

}  // namespace aisc::ops
