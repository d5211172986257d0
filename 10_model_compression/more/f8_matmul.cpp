#include "10_model_compression/more/f8_matmul.h"

#include <fmt/format.h>

#include "10_model_compression/more/eight_bits_gpu.h"
#include "common/core/error.h"
#include "common/ops/cpu/parallel.h"

namespace aisc {
namespace {

void require_one_scale(const char* what, const F8Tensor& x) {
  if (x.scales.count() != 1)
    fail(fmt::format("{}: {} in F8 with {} scales, expected 1", what, x.codes.shape().to_string(),
                     x.scales.count()));
}

Tensor decoded(const F8Tensor& x, DType dtype) {
  Tensor numbers(x.codes.shape(), dtype, x.codes.device(), Purpose::Workspace);
  from_f8(numbers, x);
  return numbers;
}

}  // namespace

void f8_matmul(View out, const F8Tensor& a, const F8Tensor& b, ops::Into into, ConstView bias) {
  require_one_scale("f8_matmul", a);
  require_one_scale("f8_matmul", b);
  const Shape &left = a.codes.shape(), &right = b.codes.shape();
  if (left.rank() != 2 || right.rank() != 2 || left[1] != right[1] ||
      out.shape() != Shape{left[0], right[0]})
    fail(fmt::format("f8_matmul: out {}, a {}, b {}, expected (M, N), (M, K), (N, K)",
                     out.shape().to_string(), left.to_string(), right.to_string()));
  const bool is_short = out.dtype() == DType::BF16 || out.dtype() == DType::F32;
  if (!is_short && out.dtype() != DType::F64)
    fail(fmt::format("f8_matmul: out is {}, expected BF16 or F32", name_of(out.dtype())));
  const DType numbers = is_short ? DType::BF16 : DType::F64;  // BF16 holds all of F8, and its scale
  if (bias &&
      (bias.dtype() != numbers || bias.shape() != Shape{right[0]} || into != ops::Into::Overwrite))
    fail(fmt::format("f8_matmul: bias {} {}, expected ({}) {}, and none together with Accumulate",
                     bias.shape().to_string(), name_of(bias.dtype()), right[0], name_of(numbers)));
  Device& device = out.device();
  if (device.kind() == DeviceKind::Cuda && is_short && left.count() * right.count() > 0 &&
      f8_gpu::multiply(out, a, b, into, bias)) {
    const auto M = static_cast<double>(left[0]), N = static_cast<double>(right[0]);
    const auto K = static_cast<double>(left[1]);
    return device.charge({.operation = "f8_matmul",
                          .flops = 2 * M * N * K,
                          .bytes = (M + N) * K + M * N * static_cast<double>(size_of(out.dtype())),
                          .dtype = out.dtype(),
                          .product = true});
  }
  ops::matmul(out, decoded(a, numbers), decoded(b, numbers),
              {.transpose = ops::Transpose::Second, .into = into, .bias = bias});
}

F8Tensor transposed(const F8Tensor& x) {
  require_one_scale("transposed", x);
  const std::int64_t C = x.codes.shape()[-1], N = x.codes.shape().rows();
  F8Tensor out{x.format, kWholeTensor, Tensor({C, N}, DType::U8, x.codes.device()),
               x.scales.share()};
  Device& device = x.codes.device();
  device.charge({.operation = "transpose",
                 .bytes = 2 * static_cast<double>(x.codes.count()),
                 .dtype = DType::U8});
  if (device.kind() == DeviceKind::Meta || x.codes.count() == 0) return out;
  if (!device.is_host()) {
    f8_gpu::transpose(out.codes, x.codes.view().reshaped({N, C}));
    return out;
  }
  const auto* from = x.codes.data<std::uint8_t>();
  auto* to = out.codes.data<std::uint8_t>();
  cpu::parallel_pieces(C, N, 1, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c)
      for (std::int64_t n = 0; n < N; ++n) to[c * N + n] = from[n * C + c];
  });
  return out;
}

}  // namespace aisc
