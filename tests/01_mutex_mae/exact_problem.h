// A problem of small numbers with few bits: all products with them, and all sums of a few thousand
// products, are exact in F32 and in F64, in whatever order and with or without a fused
// multiply-add. So results of code compiled elsewhere can be compared to the last bit.
#pragma once

#include <cmath>

#include "01_mutex_mae/problem.h"
#include "common/core/rng.h"
#include "tests/support/drawn.h"

namespace aisc {

// Features are -2, -1, 0, 1 or 2, targets and bias whole numbers of -8 .. 8, weights of -3 .. 3.
inline Problem exact_problem(std::int64_t N, std::int64_t M, std::uint64_t seed) {
  const auto whole = [](const Philox& random, std::int64_t i, int most) {
    const auto drawn = random.below(static_cast<std::uint64_t>(i), std::uint64_t(2 * most + 1));
    return static_cast<float>(static_cast<int>(drawn) - most);
  };
  const Philox x(seed, "exact x"), y(seed, "exact y"), w(seed, "exact w"), b(seed, "exact b");
  Problem problem{.N = N, .M = M};
  for (std::int64_t i = 0; i < N * M; ++i) problem.x.push_back(whole(x, i, 2));
  for (std::int64_t i = 0; i < N; ++i) problem.y.push_back(whole(y, i, 8));
  for (std::int64_t j = 0; j < M; ++j) problem.w.push_back(whole(w, j, 3));
  problem.b = whole(b, 0, 8);
  return problem;
}

// Errors of 24 bits that lie up to 2^60 apart: each addition of a sum in F64 rounds, so that
// another order of additions has other bits. Features are powers of two, so that products with them
// are exact. A step of 0.02 of a weight changes the errors by some per cent.
inline Problem rough_problem(std::int64_t N, std::int64_t M = 0) {
  const std::uint64_t seed = test_seed();
  const Philox y(seed, "rough y"), size(seed, "rough size"), x(seed, "rough x");
  Problem problem{.N = N, .M = M};
  for (std::int64_t i = 0; i < N; ++i) {
    const auto sample = static_cast<std::uint64_t>(i);
    const auto power = static_cast<int>(size.below(sample, 61));
    const auto mantissa = static_cast<float>((1 << 23) + y.below(sample, 1 << 23));
    problem.y.push_back(std::ldexp(mantissa, power));
    for (std::int64_t j = 0; j < M; ++j) {
      const bool negative = x.below(static_cast<std::uint64_t>(i * M + j), 2) == 1;
      problem.x.push_back(std::ldexp(negative ? -1.0f : 1.0f, power + 23));
    }
  }
  problem.w.assign(static_cast<std::size_t>(M), 0.0f);
  return problem;
}

// Features, targets, weights and bias are 0.
inline Problem blank_problem(std::int64_t N, std::int64_t M) {
  const auto zeros = [](std::int64_t n) { return std::vector<float>(static_cast<std::size_t>(n)); };
  return {.N = N, .M = M, .x = zeros(N * M), .y = zeros(N), .w = zeros(M)};
}

}  // namespace aisc
