// What a tensor in F8 is, element by element and block by block.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "10_model_compression/more/eight_bits.h"
#include "common/core/range.h"

namespace aisc::f8 {

// Of a block: its scale, by trying powers of two from below.
inline double scale_by_search(const NumberFormat& format, double largest) {
  if (largest == 0) return 1;
  double scale = 0x1p-100;
  while (largest / scale > format.largest()) scale *= 2;
  return scale;
}

struct Expected {
  std::vector<double> numbers, scales;
  std::vector<std::uint32_t> codes;
};
// Element by element, block by block.
inline Expected by_loops(const std::vector<double>& x, std::int64_t columns,
                         const NumberFormat& format, ScaleBlocks blocks) {
  const std::int64_t rows = columns > 0 ? std::ssize(x) / columns : 0;
  if (blocks.rows == 0) blocks.rows = std::max<std::int64_t>(rows, 1);
  if (blocks.columns == 0) blocks.columns = columns;
  Expected all{std::vector<double>(x.size()), {}, std::vector<std::uint32_t>(x.size())};
  for (std::int64_t r0 = 0; r0 < rows; r0 += blocks.rows)
    for (std::int64_t c0 = 0; c0 < columns; c0 += blocks.columns) {
      std::vector<std::size_t> block;
      for (std::int64_t r = r0; r < std::min(rows, r0 + blocks.rows); ++r)
        for (std::int64_t c = c0; c < std::min(columns, c0 + blocks.columns); ++c)
          block.push_back(index(r * columns + c));
      double largest = 0;
      for (const std::size_t i : block)
        if (std::isfinite(x[i])) largest = std::max(largest, std::abs(x[i]));
      const double scale = scale_by_search(format, largest);
      all.scales.push_back(scale);
      for (const std::size_t i : block) {
        all.codes[i] = encode(format, x[i] / scale, Overflow::Saturate);
        all.numbers[i] = decode(format, all.codes[i]) * scale;
      }
    }
  return all;
}

}  // namespace aisc::f8
