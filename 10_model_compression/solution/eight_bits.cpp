#include "10_model_compression/eight_bits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "10_model_compression/f8_rounding.h"
#include "common/core/error.h"
#include "common/core/range.h"
#include "common/ops/cpu/parallel.h"

namespace aisc {
namespace {

double bytes_of_number(const ConstView& x) { return static_cast<double>(size_of(x.dtype())); }

// False where nothing is computed. Flops and bytes are those of a number.
bool has_f8_values(const ConstView& x, const char* what, double flops, double bytes) {
  Device& device = x.device();
  const auto n = static_cast<double>(x.count());
  device.charge({.operation = what, .flops = flops * n, .bytes = bytes * n, .dtype = x.dtype()});
  if (device.kind() == DeviceKind::Meta) return false;
  if (!device.is_host())
    fail(fmt::format("{}: numbers on {}, expected on the host", what, device.name()));
  return x.count() > 0;
}

// How blocks lie on rows (N, C).
struct ScaleTiling {
  ScaleTiling(const Shape& shape, const ScaleBlocks& blocks)
      : columns(shape[-1]),
        rows(columns > 0 ? shape.count() / columns : 0),
        high(blocks.rows > 0 ? std::min(blocks.rows, rows) : rows),
        wide(blocks.columns > 0 ? std::min(blocks.columns, columns) : columns) {}
  std::int64_t down() const { return high > 0 ? (rows + high - 1) / high : 0; }
  std::int64_t across() const { return wide > 0 ? (columns + wide - 1) / wide : 0; }
  std::int64_t count() const { return down() * across(); }
  bool is_one() const { return high == rows && wide == columns; }

  std::int64_t first_of(std::int64_t block) const {
    return block / across() * high * columns + block % across() * wide;
  }
  // Calls run(first element, count) for each row of a block.
  template <class F>
  void for_rows(std::int64_t block, F run) const {
    const std::int64_t row = block / across() * high, first = first_of(block);
    const std::int64_t n = std::min(wide, columns - first % columns);
    for (std::int64_t r = 0; r < std::min(high, rows - row); ++r) run(first + r * columns, n);
  }

  std::int64_t columns, rows, high, wide;
};

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
// block's scale. A block is looked at and used while it is in cache.
template <class T, class F>
void for_scaled_runs(const T* x, const ScaleTiling& tiles, const NumberFormat& format, F use) {
  const auto scale_of = [format](std::uint32_t bits) {
    return f8_scale(format, std::bit_cast<float>(bits));
  };
  if (tiles.is_one()) {
    const float scale = scale_of(largest_bits_of_all(x, tiles.rows * tiles.columns));
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

}  // namespace

float f8_scale(const NumberFormat& format, float largest) {
  if (!(largest > 0)) return 1;
  // largest is fraction * 2^exponent; how large a fraction may be is the same for all scales.
  const int exponent = std::ilogb(largest);
  const bool fits =
      std::ldexp(largest, -exponent) <= std::ldexp(format.largest(), -format.largest_exponent());
  return std::ldexp(1.0f, std::max(exponent - format.largest_exponent() + (fits ? 0 : 1), -100));
}

float largest_magnitude(ConstView x) {
  if (!has_f8_values(x, "largest magnitude", 1, bytes_of_number(x))) return 0;
  return dispatch(x.dtype(), [&](auto type) {
    return std::bit_cast<float>(largest_bits_of_all(x.data<decltype(type)>(), x.count()));
  });
}

F8Tensor to_f8(ConstView x, const NumberFormat& format, const ScaleBlocks& blocks) {
  require_f8("to_f8", format);
  const ScaleTiling tiles(x.shape(), blocks);
  const Shape scales = tiles.is_one() ? Shape{1} : Shape{tiles.down(), tiles.across()};
  F8Tensor out{format, blocks, Tensor(x.shape(), DType::U8, x.device()),
               Tensor(scales, DType::F32, x.device())};
  if (!has_f8_values(x, "to F8", 4, 2 * bytes_of_number(x) + 1)) return out;
  auto* codes = out.codes.data<std::uint8_t>();
  auto* block_scales = out.scales.data<float>();
  dispatch(x.dtype(), [&](auto type) {
    const auto* from = x.data<decltype(type)>();
    for_scaled_runs(from, tiles, format,
                    [=, rounding = F8Rounding(format)](float scale, std::int64_t block,
                                                       std::int64_t first, std::int64_t n) {
                      write_f8_codes(codes + first, from + first, n, rounding.with(scale));
                      if (first == tiles.first_of(block)) block_scales[block] = scale;
                    });
  });
  return out;
}

void from_f8(View out, const F8Tensor& x) {
  require_fit("from_f8", out, x.codes, out.dtype());
  if (!has_f8_values(out, "from F8", 1, bytes_of_number(out) + 1)) return;
  std::array<float, 256> numbers;
  for (std::uint32_t code = 0; code < 256; ++code) numbers[code] = decode(x.format, code);
  const auto* codes = x.codes.data<std::uint8_t>();
  const auto* scales = x.scales.data<float>();
  dispatch(out.dtype(), [&](auto type) {
    using T = decltype(type);
    T* to = out.data<T>();
    for_scale_runs(ScaleTiling(x.codes.shape(), x.blocks),
                   [=](std::int64_t block, std::int64_t first, std::int64_t n) {
                     const float scale = scales[block];
                     for (std::int64_t i = first; i < first + n; ++i)
                       to[i] = static_cast<T>(numbers[codes[i]] * scale);
                   });
  });
}

void round_to_f8(View out, ConstView x, const NumberFormat& format, const ScaleBlocks& blocks) {
  require_f8("round_to_f8", format);
  require_fit("round_to_f8", out, x, x.dtype());
  if (!has_f8_values(x, "round to F8", 4, 3 * bytes_of_number(x))) return;
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* from = x.data<T>();
    T* to = out.data<T>();
    for_scaled_runs(from, ScaleTiling(x.shape(), blocks), format,
                    [=, rounding = F8Rounding(format)](float scale, std::int64_t,
                                                       std::int64_t first, std::int64_t n) {
                      write_rounded_f8(to + first, from + first, n, rounding.with(scale));
                    });
  });
}

void round_to_f8(View out, ConstView x, const NumberFormat& format, float scale) {
  require_f8("round_to_f8", format);
  require_fit("round_to_f8", out, x, x.dtype());
  if (!has_f8_values(x, "round to F8", 3, 2 * bytes_of_number(x))) return;
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* from = x.data<T>();
    T* to = out.data<T>();
    const F8Rounding rounding = F8Rounding(format).with(scale);
    cpu::parallel_elements(x.count(), [=](std::int64_t begin, std::int64_t end) {
      write_rounded_f8(to + begin, from + begin, end - begin, rounding);
    });
  });
}

}  // namespace aisc
