// A GPT in mixed precision, and how many elements its units have: for tests that count bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "common/nn/flat_layout.h"
#include "common/train/trainer.h"
#include "tests/nn/gpt_fixture.h"

namespace aisc {

inline constexpr std::int64_t kBytes = 2;  // of a weight, and of a gradient

// Mixed precision: 2 bytes of weight, 2 of gradient, 12 of master, momentum and variance.
inline TrainConfig config_of(std::int64_t micro_batches = 1) {
  TrainConfig c;
  c.model = odd_config(DType::BF16);
  c.gradient_dtype = DType::BF16;
  c.batch = 24;
  c.micro_batches = micro_batches;
  return c;
}

// Elements of a GPT's units, padding included: each block is one, the head reads the table.
struct Sizes {
  explicit Sizes(const FlatLayout& layout) {
    for (const FlatUnit& unit : layout.units()) counts.push_back(unit.range.count());
    table = counts[0];
    positions = counts[1];
    block = counts[2];
    norm = counts.back();
    all = layout.count();
  }
  std::vector<std::int64_t> counts;
  std::int64_t table, positions, block, norm, all;
};

}  // namespace aisc
