#include "10_model_compression/more/i8_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/core/error.h"
#include "common/ops/cpu/parallel.h"
#include "common/ops/ops.h"

namespace aisc {
namespace {

constexpr std::int64_t kScaleBytes = sizeof(float);
constexpr float kMiddle = 128, kLargest = 127;

// False: there are no numbers.
bool begin_rows(const Tensor& x, const char* what, std::int64_t count) {
  Device& device = x.device();
  const bool numbers = device.kind() != DeviceKind::Meta;
  if (numbers && !device.is_host())
    fail(fmt::format("stage links: activations on {}, expected on the host", device.name()));
  const auto n = static_cast<double>(count);
  device.charge({.operation = what, .flops = 4 * n, .bytes = 5 * n, .dtype = DType::F32});
  return numbers;
}

void encode_row(std::uint8_t* code, const float* x, std::int64_t C) {
  float largest = 0, not_finite = 0;  // x - x is 0, or NaN
  for (std::int64_t c = 0; c < C; ++c) {
    largest = std::max(largest, std::abs(x[c]));
    not_finite += x[c] - x[c];
  }
  // Below the smallest normal number a quotient would be no number of F32: the row is 0 then.
  float scale = largest / kLargest;
  if (scale < std::numeric_limits<float>::min()) scale = 1;
  if (not_finite != 0) scale = std::numeric_limits<float>::quiet_NaN();
  for (std::int64_t c = 0; c < C; ++c) {
    const float whole = std::isnan(scale) ? 0 : std::nearbyint(x[c] / scale);
    code[c] = static_cast<std::uint8_t>(whole + kMiddle);
  }
  std::memcpy(code + C, &scale, kScaleBytes);
}

void decode_row(float* x, const std::uint8_t* code, std::int64_t C) {
  float scale = 0;
  std::memcpy(&scale, code + C, kScaleBytes);
  for (std::int64_t c = 0; c < C; ++c) x[c] = scale * (static_cast<float>(code[c]) - kMiddle);
}

}  // namespace

Shape I8Rows::coded(const Shape& shape) const { return shape.with(-1, shape[-1] + kScaleBytes); }

Tensor I8Rows::encode(const Tensor& x) const {
  Tensor code(coded(x.shape()), DType::U8, x.device(), Purpose::Communication);
  const std::int64_t C = x.shape()[-1], bytes = C + kScaleBytes;
  if (!begin_rows(x, "encode_rows", x.count())) return code;
  Tensor rows = x.share();
  if (x.dtype() != DType::F32) {
    rows = Tensor(x.shape(), DType::F32, x.device(), Purpose::Workspace);
    ops::cast(rows, x);
  }
  const float* from = rows.data<float>();
  auto* to = code.data<std::uint8_t>();
  cpu::parallel_rows(x.shape().rows(), C,
                     [=](std::int64_t n) { encode_row(to + n * bytes, from + n * C, C); });
  return code;
}

Tensor I8Rows::decode(const Tensor& code, DType dtype) const {
  const std::int64_t bytes = code.shape()[-1], C = bytes - kScaleBytes;
  const Shape shape = code.shape().with(-1, C);
  Tensor x(shape, dtype, code.device());
  if (!begin_rows(code, "decode_rows", x.count())) return x;
  Tensor rows = x.share();
  if (dtype != DType::F32) rows = Tensor(shape, DType::F32, x.device(), Purpose::Workspace);
  const auto* from = code.data<std::uint8_t>();
  auto* to = rows.data<float>();
  cpu::parallel_rows(shape.rows(), C,
                     [=](std::int64_t n) { decode_row(to + n * C, from + n * bytes, C); });
  if (dtype != DType::F32) ops::cast(x, rows);
  return x;
}

LinkCodes i8_links(Coded what) {
  const auto rows = std::make_shared<I8Rows>();
  if (what == Coded::Activations) return {.forward = rows};
  return {.forward = rows, .backward = rows};
}

}  // namespace aisc
