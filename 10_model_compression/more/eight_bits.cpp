#include "10_model_compression/more/eight_bits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "10_model_compression/more/eight_bits_gpu.h"
#include "10_model_compression/more/f8_rounding.h"
#include "10_model_compression/more/scale_tiling.h"
#include "common/core/error.h"
#include "common/core/range.h"
#include "common/ops/cpu/parallel.h"

namespace aisc {
namespace {

double bytes_of_number(const ConstView& x) { return static_cast<double>(size_of(x.dtype())); }

// Whose numbers these are. Flops and bytes are those of a number.
enum class Numbers { None, OfHost, OfGpu };
Numbers charged_numbers(const ConstView& x, const char* what, double flops, double bytes) {
  Device& device = x.device();
  const auto n = static_cast<double>(x.count());
  device.charge({.operation = what, .flops = flops * n, .bytes = bytes * n, .dtype = x.dtype()});
  if (device.kind() == DeviceKind::Meta || x.count() == 0) return Numbers::None;
  return device.is_host() ? Numbers::OfHost : Numbers::OfGpu;
}
// Likewise, of numbers that are looked at once more where no scale is known.
Numbers charged_numbers(const ConstView& x, const char* what, float known, double bytes_read,
                        double bytes_written) {
  const bool twice = !(known > 0);
  return charged_numbers(x, what, twice ? 4 : 3, (twice ? 2 : 1) * bytes_read + bytes_written);
}

template <class F>
void for_scale_blocks(const ScaleTiling& tiles, F use) {
  cpu::parallel_pieces(tiles.count(), tiles.high * tiles.wide, 1,
                       [use](std::int64_t begin, std::int64_t end) {
                         for (std::int64_t block = begin; block < end; ++block) use(block);
                       });
}

// Calls use(block, first element, count) for runs that together are all of x. A single block is
// shared among threads, too.
template <class F>
void for_scale_runs(const ScaleTiling& tiles, F use) {
  if (tiles.is_one())
    return cpu::parallel_elements(
        tiles.rows * tiles.columns,
        [use](std::int64_t begin, std::int64_t end) { use(0, begin, end - begin); });
  for_scale_blocks(tiles, [=](std::int64_t block) {
    tiles.for_rows(block, [&](std::int64_t first, std::int64_t n) { use(block, first, n); });
  });
}

template <class T>
std::uint32_t largest_bits_of_all(const T* x, std::int64_t n) {
  std::uint32_t largest = 0;  // the same in whatever order
  const std::int64_t piece = 4096, pieces = (n + piece - 1) / piece;
#pragma omp parallel for reduction(max : largest) if (n >= cpu::kSerialBelow)
  for (std::int64_t p = 0; p < pieces; ++p)
    largest = std::max(largest, largest_finite_bits(x + p * piece, std::min(piece, n - p * piece)));
  return largest;
}

// Calls use(scale, block, first element, count) for runs that together are all of x, each with its
// block's scale. A block is looked at and used while it is in cache. `known`: the scale of all; 0:
// it is that of the largest.
template <class T, class F>
void for_scaled_runs(const T* x, const ScaleTiling& tiles, const NumberFormat& format, float known,
                     F use) {
  const auto scale_of = [rounding = F8Rounding(format)](std::uint32_t bits) {
    return rounding.scale_for(bits);
  };
  if (tiles.is_one()) {
    const float scale =
        known > 0 ? known : scale_of(largest_bits_of_all(x, tiles.rows * tiles.columns));
    return for_scale_runs(
        tiles, [=](std::int64_t, std::int64_t first, std::int64_t n) { use(scale, 0, first, n); });
  }
  for_scale_blocks(tiles, [=](std::int64_t block) {
    std::uint32_t largest = 0;
    tiles.for_rows(block, [&](std::int64_t first, std::int64_t n) {
      largest = std::max(largest, largest_finite_bits(x + first, n));
    });
    const float scale = scale_of(largest);
    tiles.for_rows(block, [&](std::int64_t first, std::int64_t n) { use(scale, block, first, n); });
  });
}

void require_fit(const char* what, const ConstView& out, const ConstView& x, DType dtype) {
  if (out.count() != x.count() || out.dtype() != dtype)
    fail(fmt::format("{}: out is {} {}, expected {} {}", what, out.shape().to_string(),
                     name_of(out.dtype()), x.shape().to_string(), name_of(dtype)));
}

void require_f8(const char* what, const NumberFormat& format) {
  if (format.bits() != 8)
    fail(fmt::format("{}: {} has {} bits, expected 8", what, format.name, format.bits()));
}

F8Tensor coded_f8(ConstView x, const NumberFormat& format, const ScaleBlocks& blocks, float known) {
  require_f8("to_f8", format);
  const ScaleTiling tiles(x.shape(), blocks);
  const Shape scales = tiles.is_one() ? Shape{1} : Shape{tiles.down(), tiles.across()};
  F8Tensor out{format, blocks, Tensor(x.shape(), DType::U8, x.device()),
               Tensor(scales, DType::F32, x.device())};
  if (x.count() == 0) ops::fill(out.scales, 1);
  const Numbers numbers = charged_numbers(x, "to F8", known, bytes_of_number(x), 1);
  if (numbers == Numbers::OfGpu) f8_gpu::to_f8(out, x, known);
  if (numbers != Numbers::OfHost) return out;
  auto* codes = out.codes.data<std::uint8_t>();
  auto* block_scales = out.scales.data<float>();
  dispatch(x.dtype(), [&](auto type) {
    const auto* from = x.data<decltype(type)>();
    for_scaled_runs(from, tiles, format, known,
                    [=, rounding = F8Rounding(format)](float scale, std::int64_t block,
                                                       std::int64_t first, std::int64_t n) {
                      write_f8_codes(codes + first, from + first, n, rounding.with(scale));
                      if (first == tiles.first_of(block)) block_scales[block] = scale;
                    });
  });
  return out;
}

void write_f8(View out, ConstView x, const NumberFormat& format, const ScaleBlocks& blocks,
              float known) {
  require_f8("round_to_f8", format);
  require_fit("round_to_f8", out, x, x.dtype());
  const double bytes = bytes_of_number(x);
  const Numbers numbers = charged_numbers(x, "round to F8", known, bytes, bytes);
  if (numbers == Numbers::OfGpu) f8_gpu::round_to_f8(out, x, format, blocks, known);
  if (numbers != Numbers::OfHost) return;
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* from = x.data<T>();
    T* to = out.data<T>();
    for_scaled_runs(from, ScaleTiling(x.shape(), blocks), format, known,
                    [=, rounding = F8Rounding(format)](float scale, std::int64_t,
                                                       std::int64_t first, std::int64_t n) {
                      write_rounded_f8(to + first, from + first, n, rounding.with(scale));
                    });
  });
}

}  // namespace

float f8_scale(const NumberFormat& format, float largest) {
  return largest > 0 ? F8Rounding(format).scale_for(f32_bits(largest)) : 1;
}

float largest_magnitude(ConstView x) {
  const Numbers numbers = charged_numbers(x, "largest magnitude", 1, bytes_of_number(x));
  if (numbers == Numbers::None) return 0;
  if (numbers == Numbers::OfGpu) return f8_gpu::largest_magnitude(x);
  return dispatch(x.dtype(), [&](auto type) {
    return f32_of_bits(largest_bits_of_all(x.data<decltype(type)>(), x.count()));
  });
}

F8Tensor to_f8(ConstView x, const NumberFormat& format, const ScaleBlocks& blocks) {
  return coded_f8(x, format, blocks, 0);
}
F8Tensor to_f8(ConstView x, const NumberFormat& format, float scale) {
  return coded_f8(x, format, kWholeTensor, scale);
}
void round_to_f8(View out, ConstView x, const NumberFormat& format, const ScaleBlocks& blocks) {
  write_f8(out, x, format, blocks, 0);
}
void round_to_f8(View out, ConstView x, const NumberFormat& format, float scale) {
  write_f8(out, x, format, kWholeTensor, scale);
}

void from_f8(View out, const F8Tensor& x) {
  require_fit("from_f8", out, x.codes, out.dtype());
  const Numbers numbers = charged_numbers(out, "from F8", 1, bytes_of_number(out) + 1);
  if (numbers == Numbers::OfGpu) f8_gpu::from_f8(out, x);
  if (numbers != Numbers::OfHost) return;
  std::array<float, 256> values;
  for (std::uint32_t code = 0; code < 256; ++code) values[code] = decode(x.format, code);
  const auto* codes = x.codes.data<std::uint8_t>();
  const auto* scales = x.scales.data<float>();
  dispatch(out.dtype(), [&](auto type) {
    using T = decltype(type);
    T* to = out.data<T>();
    for_scale_runs(ScaleTiling(x.codes.shape(), x.blocks),
                   [=](std::int64_t block, std::int64_t first, std::int64_t n) {
                     const float scale = scales[block];
                     for (std::int64_t i = first; i < first + n; ++i)
                       to[i] = static_cast<T>(values[codes[i]] * scale);
                   });
  });
}

}  // namespace aisc
