// Sums over rows, as gradients of biases and gains need them. Rows are summed in fixed blocks, then
// the blocks in order: the result is more accurate than one long sum, and does not depend on the
// number of threads.
#pragma once

#include <algorithm>

#include "common/core/tensor.h"
#include "common/ops/cpu/parallel.h"
#include "common/ops/ops.h"

namespace aisc::cpu {

template <class S>
class ColumnSums {
 public:
  ColumnSums(std::int64_t rows, std::int64_t columns, Device& device)
      : rows_(rows),
        columns_(columns),
        blocks_((rows + kRows - 1) / kRows),
        partials_({blocks_, columns}, DTypeOf<S>::value, device, Purpose::Workspace) {}

  // Calls f(partial, row) for all rows; f adds its row to partial[0 .. columns).
  template <class F>
  void add_rows(const F& f) const {
    S* partials = partials_.template data<S>();
    parallel_pieces(blocks_, kRows * columns_, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t block = begin; block < end; ++block) {
        S* partial = partials + block * columns_;
        std::fill(partial, partial + columns_, S(0));
        const std::int64_t last = std::min(rows_, (block + 1) * kRows);
        for (std::int64_t row = block * kRows; row < last; ++row) f(partial, row);
      }
    });
  }

  // out = [out +] the sums of columns [first, first + out's count).
  void store(View out, std::int64_t first, ops::Into into) const {
    dispatch(out.dtype(), [&](auto type) { store_as<decltype(type)>(out, first, into); });
  }

 private:
  static constexpr std::int64_t kRows = 32;    // of a block
  static constexpr std::int64_t kStripe = 64;  // columns that one thread adds up at a time

  template <class Out>
  void store_as(View out, std::int64_t first, ops::Into into) const {
    const S* partials = partials_.template data<S>() + first;
    Out* to = out.data<Out>();
    parallel_pieces(out.count(), blocks_, kStripe, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c0 = begin; c0 < end; c0 += kStripe) {
        const std::int64_t n = std::min(kStripe, end - c0);
        S sums[kStripe] = {};
        for (std::int64_t block = 0; block < blocks_; ++block)
          for (std::int64_t c = 0; c < n; ++c) sums[c] += partials[block * columns_ + c0 + c];
        for (std::int64_t c = 0; c < n; ++c) {
          const S before = into == ops::Into::Accumulate ? static_cast<S>(to[c0 + c]) : S(0);
          to[c0 + c] = static_cast<Out>(before + sums[c]);
        }
      }
    });
  }

  std::int64_t rows_, columns_, blocks_;
  Tensor partials_;
};

}  // namespace aisc::cpu
