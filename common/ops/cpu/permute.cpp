// Permutation of dimensions.
#include <algorithm>
#include <cstring>

#include "common/ops/cpu/kernels.h"
#include "common/ops/cpu/parallel.h"

namespace aisc::cpu {
namespace {

// `out` seen as four dimensions, the outer ones possibly 1 long: how far a step along each leads in
// x.
struct Walk {
  std::int64_t extent[4] = {1, 1, 1, 1};
  std::int64_t stride[4] = {0, 0, 0, 0};
};

Walk plan(const ConstView& x, const std::array<int, 4>& order) {
  const int rank = x.shape().rank();
  std::int64_t strides[4] = {0, 0, 0, 0};
  std::int64_t step = 1;
  for (int d = rank - 1; d >= 0; --d) {
    strides[d] = step;
    step *= x.shape()[d];
  }
  Walk walk;
  for (int d = 0; d < rank; ++d) {
    const int from = order[static_cast<std::size_t>(d)];
    walk.extent[4 - rank + d] = x.shape()[from];
    walk.stride[4 - rank + d] = strides[from];
  }
  return walk;
}

// Word has the size of an element: only places change, values do not.
template <class Word>
void permute_words(Word* out, const Word* x, const Walk& walk) {
  const auto& [E0, E1, E2, E3] = walk.extent;
  const auto& [s0, s1, s2, s3] = walk.stride;
  const std::int64_t rows = E0 * E1 * E2;
  const std::int64_t row_step = s3, columns = E3, e1 = E1, e2 = E2, t0 = s0, t1 = s1, t2 = s2;
  parallel_rows(rows, columns, [=](std::int64_t row) {
    const Word* from = x + row / (e1 * e2) * t0 + row / e2 % e1 * t1 + row % e2 * t2;
    Word* to = out + row * columns;
    if (row_step == 1)
      std::copy(from, from + columns, to);
    else
      for (std::int64_t i = 0; i < columns; ++i) to[i] = from[i * row_step];
  });
}

}  // namespace

void permute(View out, ConstView x, std::array<int, 4> order) {
  if (x.count() == 0) return;
  const Walk walk = plan(x, order);
  const auto run = [&](auto word) {
    using Word = decltype(word);
    permute_words(static_cast<Word*>(out.raw()), static_cast<const Word*>(x.raw()), walk);
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
