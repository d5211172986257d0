// How loops are shared among threads: one contiguous piece a thread, always the same piece for the
// same count, so that a thread finds in its cache what it wrote in the operation before.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace aisc::cpu {

// To start and end a parallel region costs some microseconds: as long as one thread needs for about
// this many elements. Smaller loops stay serial.
inline constexpr std::int64_t kSerialBelow = 16384;

// Calls f(begin, end) for pieces that cover [0, count) exactly once; `cost` is the number of
// elements that one of the count stands for. All but the last piece have a multiple of `unit`.
// Every thread has its own copy of f: what f captured by value then stays in registers, while in a
// shared copy any store into an output might have changed it.
template <class F>
void parallel_pieces(std::int64_t count, std::int64_t cost, std::int64_t unit, F f) {
#pragma omp parallel firstprivate(f) if (count * cost >= kSerialBelow && count > unit)
  {
    const std::int64_t threads = omp_get_num_threads(), me = omp_get_thread_num();
    const std::int64_t units = (count + unit - 1) / unit;
    const std::int64_t begin = std::min(count, units * me / threads * unit);
    const std::int64_t end = std::min(count, units * (me + 1) / threads * unit);
    if (begin < end) f(begin, end);
  }
}

// Elements, in pieces of whole cache lines of any type.
template <class F>
void parallel_elements(std::int64_t count, F f) {
  parallel_pieces(count, 1, 64, f);
}

// Calls f(row) for each of `rows` rows of `columns` elements.
template <class F>
void parallel_rows(std::int64_t rows, std::int64_t columns, F f) {
  parallel_pieces(rows, columns, 1, [f](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) f(row);
  });
}

}  // namespace aisc::cpu
