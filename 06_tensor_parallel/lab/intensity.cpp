// Yours to write; from 06_tensor_parallel/solution/intensity.cpp (stub ec10dcc76ba1).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
#include "06_tensor_parallel/intensity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/core/error.h"

namespace aisc {
namespace {

void check(const SplitProduct& p) {
  if (p.M < 1 || p.N < 1 || p.K < 1)
    fail(fmt::format("split product: M {}, N {}, K {}, expected 1 or more of each", p.M, p.N, p.K));
}

struct Sizes {
  double M, N, K, element_bytes;
};
Sizes sizes_of(const SplitProduct& p) {
  return {static_cast<double>(p.M), static_cast<double>(p.N), static_cast<double>(p.K),
          static_cast<double>(size_of(p.dtype))};
}

}  // namespace

PartCost cost_of_part(const SplitProduct& product, std::int64_t ranks) {
  check(product);
  if (ranks < 1) fail(fmt::format("split product: over {} ranks, expected 1 or more", ranks));
  const auto [M, N, K, element_bytes] = sizes_of(product);
  const double columns = N / static_cast<double>(ranks);
  return {.flops = 2 * M * columns * K,
          .bytes = element_bytes * (M * K + K * columns + M * columns)};  // X, A/p, Y/p
}

std::int64_t most_ranks(const SplitProduct& product, double balance) {
  check(product);
  if (!(balance > 0))
    fail(fmt::format("split product: a balance of {} FLOPs a byte, expected more than 0", balance));
  // LAB 06.7: how many ranks a product can use
  // cost_of_part() above is what a rank computes and moves. Which of its bytes does p divide?
  // sizes_of() has the numbers; the header says what holds at both ends.
  throw NotImplemented("lab 06.7: how many ranks a product can use", __FILE__, __LINE__);
  // END LAB 06.7
}

}  // namespace aisc
