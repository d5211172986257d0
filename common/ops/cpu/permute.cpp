// Permutation of dimensions: four nested loops, of which the innermost two go tile by tile where
// they transpose.
#include <algorithm>
#include <utility>

#include "common/ops/cpu/kernels.h"
#include "common/ops/cpu/parallel.h"

namespace aisc::cpu {
namespace {

constexpr std::int64_t kTile = 16;  // 16 cache lines on either side, used whole

struct Loop {
  std::int64_t extent = 1;
  std::int64_t in_step = 0, out_step = 0;  // elements from one index to the next
};

// The loops over `out`, padded with loops of one step. The last writes out's innermost dimension;
// the one before it reads x's innermost dimension, unless that is the same.
std::array<Loop, 4> plan(const ConstView& x, const std::array<int, 4>& order) {
  const int rank = x.shape().rank();
  std::array<std::int64_t, 4> steps{1, 1, 1, 1};
  for (int d = rank - 2; d >= 0; --d)
    steps[static_cast<std::size_t>(d)] = steps[static_cast<std::size_t>(d) + 1] * x.shape()[d + 1];
  std::array<Loop, 4> loops;
  std::int64_t out_step = 1;
  std::size_t contiguous = 3;
  for (int d = rank - 1; d >= 0; --d) {
    const auto loop = static_cast<std::size_t>(4 - rank + d);
    const int from = order[static_cast<std::size_t>(d)];
    loops[loop] = {x.shape()[from], steps[static_cast<std::size_t>(from)], out_step};
    out_step *= x.shape()[from];
    if (from == rank - 1) contiguous = loop;
  }
  if (contiguous < 3) std::swap(loops[contiguous], loops[2]);
  return loops;
}

// Word has the size of an element: only places change, values do not.
template <class Word>
void permute_words(Word* out, const Word* x, const std::array<Loop, 4>& loops) {
  const Loop outer = loops[0], middle = loops[1], rows = loops[2], columns = loops[3];
  const std::int64_t stripes = (rows.extent + kTile - 1) / kTile;
  const auto stripe = [=](std::int64_t n) {
    const std::int64_t i = n / stripes / middle.extent, j = n / stripes % middle.extent;
    const std::int64_t first = n % stripes * kTile, last = std::min(rows.extent, first + kTile);
    const Word* from = x + i * outer.in_step + j * middle.in_step;
    Word* to = out + i * outer.out_step + j * middle.out_step;
    if (columns.in_step == 1) {
      for (std::int64_t r = first; r < last; ++r)
        std::copy_n(from + r * rows.in_step, columns.extent, to + r * rows.out_step);
      return;
    }
    for (std::int64_t c0 = 0; c0 < columns.extent; c0 += kTile) {
      const std::int64_t c1 = std::min(columns.extent, c0 + kTile);
      for (std::int64_t r = first; r < last; ++r)
        for (std::int64_t c = c0; c < c1; ++c)
          to[r * rows.out_step + c] = from[r * rows.in_step + c * columns.in_step];
    }
  };
  parallel_rows(outer.extent * middle.extent * stripes, kTile * columns.extent, stripe);
}

}  // namespace

void permute(View out, ConstView x, std::array<int, 4> order) {
  if (x.count() == 0) return;
  const auto loops = plan(x, order);
  const auto run = [&](auto word) {
    using Word = decltype(word);
    permute_words(static_cast<Word*>(out.raw()), static_cast<const Word*>(x.raw()), loops);
  };
  switch (size_of(x.dtype())) {
    case 8:
      return run(std::uint64_t{});
    case 4:
      return run(std::uint32_t{});
    default:
      return run(std::uint16_t{});
  }
}

}  // namespace aisc::cpu
