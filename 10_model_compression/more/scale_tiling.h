// How the blocks of numbers that share a scale lie on a tensor.
#pragma once

#include <algorithm>
#include <cstdint>

#include "10_model_compression/more/eight_bits.h"

namespace aisc {

// On rows (N, C), numbered from the left and then downwards.
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

}  // namespace aisc
