// Few rows: codes decoded in registers (coded_rows.h). Many: a block of the weight at a time,
// decoded in cache.
#include "10_model_compression/more/quant_product.h"

#include <fmt/format.h>

#include <algorithm>

#include "10_model_compression/more/coded_rows.h"
#include "common/core/error.h"
#include "common/ops/ops.h"

namespace aisc {
namespace {

// Floats of a decoded block: 1 MiB.
constexpr std::int64_t kBlockFloats = std::int64_t{1} << 18;

void by_blocks(View y, ConstView x, const Codes& weight, ConstView bias) {
  const std::int64_t N = x.shape()[0], O = weight.shape[0], I = weight.shape[1];
  const std::int64_t most =
      std::clamp<std::int64_t>(kBlockFloats / std::max<std::int64_t>(I, 1), 16, O);
  Device& device = y.device();
  const Tensor decoded({most, I}, DType::F32, device, Purpose::Workspace);
  const Tensor product({N, most}, DType::F32, device, Purpose::Workspace);
  for (std::int64_t first = 0; first < O; first += most) {
    const std::int64_t rows = std::min(most, O - first);
    const View block = decoded.rows(0, rows);                                // (R, I)
    const View part = product.view().flat(0, N * rows).reshaped({N, rows});  // (N, R)
    dequantize_rows(block, weight, first);
    ops::matmul(
        part, x, block,
        {.transpose = ops::Transpose::Second, .bias = bias ? bias.flat(first, rows) : ConstView()});
    const float* from = part.data<float>();
    for (std::int64_t n = 0; n < N; ++n)
      std::copy_n(from + n * rows, rows, y.data<float>() + n * O + first);
  }
}

template <int bits>
void product_of(View y, ConstView x, const Codes& weight, ConstView bias) {
  const float* its = bias ? bias.data<float>() : nullptr;
  switch (x.shape()[0]) {
    case 1:
      return coded::few_rows<1, bits>(y, x, weight, its);
    case 2:
      return coded::few_rows<2, bits>(y, x, weight, its);
    case 3:
      return coded::few_rows<3, bits>(y, x, weight, its);
    case 4:
      return coded::few_rows<4, bits>(y, x, weight, its);
    default:
      return by_blocks(y, x, weight, bias);
  }
}

void check_product(const char* what, const ConstView& found, const Shape& shape) {
  if (found.shape() != shape || found.dtype() != DType::F32)
    fail(fmt::format("quant_product: {} is {} {}, expected {} F32", what, found.shape().to_string(),
                     name_of(found.dtype()), shape.to_string()));
}

}  // namespace

void quant_product(View y, ConstView x, const Codes& weight, ConstView bias) {
  const std::int64_t N = x.shape().rank() == 2 ? x.shape()[0] : 0;
  const std::int64_t O = weight.shape[0], I = weight.shape[1];
  check_product("x", x, {N, I});
  check_product("y", y, {N, O});
  if (bias) check_product("bias", bias, {O});
  Device& device = y.device();
  const auto n = static_cast<double>(N);
  device.charge(
      {.operation = "quant_product",
       .flops = 2 * n * static_cast<double>(O * I),
       .bytes = static_cast<double>(weight.bytes()) + static_cast<double>(x.bytes() + y.bytes()),
       .product = true});
  if (device.kind() == DeviceKind::Meta || N == 0 || O == 0) return;
  if (weight.how.bits == 4)
    product_of<4>(y, x, weight, bias);
  else
    product_of<8>(y, x, weight, bias);
}

}  // namespace aisc
