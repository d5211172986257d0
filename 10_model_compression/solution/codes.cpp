// What codes are beside their numbers: how scales lie, memory, and the way back to numbers.
#include <fmt/format.h>

#include "10_model_compression/quantize.h"
#include "common/core/error.h"
#include "common/ops/cpu/parallel.h"
#include "common/ops/cpu/vector_math.h"

namespace aisc {

void Quantization::validate() const {
  if (bits != 8 && bits != 4) fail(fmt::format("quantize: {} bits, expected 8 or 4", bits));
  if (per == Per::Group && (group < 1 || group % 2 != 0))
    fail(fmt::format("quantize: groups of {} weights, expected an even number, 2 or more", group));
}

ScaleLayout scale_layout(const Shape& shape, const Quantization& how) {
  how.validate();
  if (shape.rank() != 2)
    fail(fmt::format("quantize: the weight is {}, expected (rows, columns)", shape.to_string()));
  ScaleLayout layout{.rows = shape[0], .columns = shape[1], .group = shape[1], .groups = 1};
  if (how.per == Per::Group) {
    layout.group = how.group;
    layout.groups = (layout.columns + how.group - 1) / how.group;
  }
  layout.scale_rows = how.per == Per::Tensor ? 1 : layout.rows;
  return layout;
}

std::int64_t Codes::bytes() const {
  return static_cast<std::int64_t>(codes.bytes() + scales.bytes() + zero_points.bytes());
}

Codes Codes::share() const {
  return {shape, how, codes.share(), scales.share(), zero_points ? zero_points.share() : Tensor()};
}

Codes make_codes(const Shape& shape, const Quantization& how, Device& device) {
  const ScaleLayout layout = scale_layout(shape, how);
  const std::int64_t bytes = how.bits == 4 ? (layout.columns + 1) / 2 : layout.columns;
  const Shape scales{layout.scale_rows, layout.groups};
  Codes made{.shape = shape, .how = how};
  made.codes = Tensor({layout.rows, bytes}, DType::U8, device, Purpose::Parameters);
  made.scales = Tensor(scales, DType::F32, device, Purpose::Parameters);
  if (how.symmetry == Symmetry::Asymmetric)
    made.zero_points = Tensor(scales, DType::U8, device, Purpose::Parameters);
  return made;
}

namespace {

template <class T>
void decode_rows(T* out, const Codes& codes, std::int64_t first, std::int64_t rows) {
  const ScaleLayout layout = codes.layout();
  const std::int64_t row_bytes = codes.codes.shape()[1];
  const std::uint8_t* all = codes.codes.data<std::uint8_t>();
  const float* scales = codes.scales.data<float>();
  const std::uint8_t* zeros = codes.zero_points ? codes.zero_points.data<std::uint8_t>() : nullptr;
  const int middle = codes.middle();
  const bool packed = codes.how.bits == 4;
  cpu::parallel_rows(rows, layout.columns, [=](std::int64_t r) {
    const std::uint8_t* from = all + (first + r) * row_bytes;
    T* to = out + r * layout.columns;
    for (std::int64_t g = 0; g < layout.groups; ++g) {
      const std::int64_t scale_index = layout.first(first + r) + g, end = layout.end(g);
      const float scale = scales[scale_index];
      const int zero = zeros ? zeros[scale_index] : middle;
      const auto number = [scale, zero](int code) {
        return cpu::narrow<T>(Accumulator<T>{scale * static_cast<float>(code - zero)});
      };
      const std::int64_t begin = layout.begin(g);
      if (!packed) {
#pragma omp simd
        for (std::int64_t k = begin; k < end; ++k) to[k] = number(from[k]);
        continue;
      }
      // A group begins at a byte, since groups are even; a row may end within one.
#pragma omp simd
      for (std::int64_t b = begin / 2; b < end / 2; ++b) {
        to[2 * b] = number(from[b] & 15);
        to[2 * b + 1] = number(from[b] >> 4);
      }
      if (end % 2 != 0) to[end - 1] = number(from[end / 2] & 15);
    }
  });
}

}  // namespace

void dequantize_rows(View out, const Codes& codes, std::int64_t first) {
  const std::int64_t rows = out.shape().rank() == 2 ? out.shape()[0] : -1;
  if (rows < 0 || out.shape()[1] != codes.shape[1] || first < 0 || first + rows > codes.shape[0])
    fail(fmt::format("dequantize: out is {} from row {} on, the codes are of a weight {}",
                     out.shape().to_string(), first, codes.shape.to_string()));
  if (out.device().kind() == DeviceKind::Meta) return;
  dispatch(out.dtype(),
           [&](auto type) { decode_rows(out.data<decltype(type)>(), codes, first, rows); });
}

void dequantize(View out, const Codes& codes) {
  if (out.shape() != codes.shape)
    fail(fmt::format("dequantize: out is {}, the codes are of a weight {}", out.shape().to_string(),
                     codes.shape.to_string()));
  dequantize_rows(out, codes, 0);
}

}  // namespace aisc
