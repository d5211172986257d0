// Adafactor's passes over the numbers of one slice: fused, in blocks, with sums in a fixed order.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "04_sharding/factored_moment.h"
#include "common/core/range.h"
#include "common/core/tensor.h"

namespace aisc::adafactor {

inline constexpr std::int64_t kRun = 512;      // numbers of U at a time: they stay in the cache
inline constexpr std::int64_t kBlock = 16384;  // numbers of which one thread makes partial sums
inline constexpr std::int64_t kSerialBelow =
    16384;  // numbers for which threads are not worth starting

inline constexpr std::int64_t kVectorRow = kRun;  // what is no matrix is cut into such rows

inline bool has_numbers(const Device& device) { return device.kind() != DeviceKind::Meta; }

// A piece of one row of a parameter: `at` counts in the slice.
struct Run {
  std::int64_t row, column, at, count;
};

// The numbers of a slice, in blocks of whole rows of its parameter. Blocks, and so the order of all
// sums, depend on sizes alone, not on the number of threads.
template <class S, class G, class T>  // statistics, gradient, weight
struct Part {
  const G* gradient;
  S* weight;                // in full precision
  T* short_weight;          // the same, unless `weight` is a master
  S* v;                     // null: of a matrix
  RowsAndColumns<S> sums;   // of a matrix: sums at first, then factors
  S scale;                  // of the gradient
  std::int64_t columns;     // of a row
  std::int64_t begin, end;  // elements of its parameter, without padding

  std::int64_t rows_of_block() const { return std::max<std::int64_t>(32, kBlock / columns); }
  std::int64_t blocks() const {
    return begin == end ? 0 : ((end - 1) / columns - begin / columns) / rows_of_block() + 1;
  }
  template <class F>
  void each_block(const F& f) const {  // f(block) on all threads
    const std::int64_t count = blocks();
#pragma omp parallel for schedule(static) if (end - begin >= kSerialBelow)
    for (std::int64_t block = 0; block < count; ++block) f(block);
  }
  template <class F>
  void each_run(std::int64_t block, const F& f) const {
    const std::int64_t top = begin / columns + block * rows_of_block();
    const std::int64_t bottom = std::min(top + rows_of_block(), (end - 1) / columns + 1);
    for (std::int64_t row = top; row < bottom; ++row) {
      const std::int64_t stop = std::min(end, (row + 1) * columns);
      for (std::int64_t i = std::max(begin, row * columns); i < stop; i += kRun)
        f(Run{row, i - row * columns, i - begin, std::min(kRun, stop - i)});
    }
  }
  S g(std::int64_t i) const { return scale * static_cast<S>(gradient[i]); }

  void average(S beta2, S eps1) const {
    each_block([=, *this](std::int64_t block) {
      each_run(block, [=, *this](const Run& run) {
#pragma omp simd
        for (std::int64_t k = run.at; k < run.at + run.count; ++k)
          v[k] = beta2 * v[k] + (1 - beta2) * (g(k) * g(k) + eps1);
      });
    });
  }

  // A row lies in one block, a column in all: each block has column sums of its own.
  void add_squares(S eps1, Device& device) const {
    const std::int64_t count = blocks();
    const Tensor partials({count, columns}, DTypeOf<S>::value, device, Purpose::Workspace);
    S* const partial = partials.data<S>();
    each_block([&](std::int64_t block) {
      S* const of_block = partial + block * columns;
      std::fill_n(of_block, columns, S(0));
      each_run(block, [=, *this](const Run& run) {
        S* const column = of_block + run.column;
        S sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t k = 0; k < run.count; ++k) {
          const S square = g(run.at + k) * g(run.at + k) + eps1;
          column[k] += square;
          sum += square;
        }
        sums.row[index(run.row)] += sum;
      });
    });
#pragma omp parallel for schedule(static) if (count * columns >= kSerialBelow)
    for (std::int64_t left = 0; left < columns; left += kRun)
      for (std::int64_t block = 0; block < count; ++block)
        for (std::int64_t c = left; c < std::min(left + kRun, columns); ++c)
          sums.column[index(c)] += partial[block * columns + c];
  }

  // f(u, run) for the runs of a block, with U before clipping.
  template <class F>
  void each_u(std::int64_t block, const F& f) const {
    each_run(block, [=, *this](const Run& run) {
      std::array<S, kRun> u;
      if (v) {
#pragma omp simd
        for (std::int64_t k = 0; k < run.count; ++k)
          u[index(k)] = g(run.at + k) / std::sqrt(v[run.at + k]);
      } else {
        const S row = sums.row[index(run.row)];
        const S* const column = sums.column.data() + run.column;
#pragma omp simd
        for (std::int64_t k = 0; k < run.count; ++k) u[index(k)] = g(run.at + k) * row * column[k];
      }
      f(u.data(), run);
    });
  }

  // The sums of the squares of U and of X.
  std::array<double, 2> squares() const {
    std::vector<std::array<double, 2>> partials(index(blocks()));
    each_block([&](std::int64_t block) {
      std::array<double, 2>& partial = partials[index(block)];
      each_u(block, [&partial, all = weight](const S* u, const Run& run) {
        const S* const x = all + run.at;
        S of_u = 0, of_x = 0;
#pragma omp simd reduction(+ : of_u, of_x)
        for (std::int64_t k = 0; k < run.count; ++k) {
          of_u += u[k] * u[k];
          of_x += x[k] * x[k];
        }
        partial[0] += of_u, partial[1] += of_x;
      });
    });
    std::array<double, 2> sum{};
    for (const auto& [u, x] : partials) sum[0] += u, sum[1] += x;
    return sum;
  }

  // X <- keep X - rate U
  void move(S rate, S keep) const {
    each_block([=, *this](std::int64_t block) {
      each_u(block, [=, *this](const S* u, const Run& run) {
        S* const x = weight + run.at;
#pragma omp simd
        for (std::int64_t k = 0; k < run.count; ++k) x[k] = keep * x[k] - rate * u[k];
        if constexpr (sizeof(T) < sizeof(S))
          for (std::int64_t k = 0; k < run.count; ++k)
            short_weight[run.at + k] = static_cast<T>(x[k]);
      });
    });
  }
};

}  // namespace aisc::adafactor
