// The sums in OpenMP's words, and the error by lanes, whose order of additions is part of the
// contract.
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "01_mutex_mae/mae_omp.h"
#include "tests/01_mutex_mae/watched.h"

namespace aisc {
namespace {

using OmpSum = double (*)(const Problem&, int);

// By as many threads as the team has.
template <OmpSum sum>
double as_many(const Problem& problem, Team& team) {
  return sum(problem, team.size());
}
constexpr auto omp_critical = as_many<mae_omp_critical>, omp_atomic = as_many<mae_omp_atomic>,
               omp_reduction = as_many<mae_omp_reduction>, simd = as_many<mae_simd>;

// Exactly `threads` threads, each with the samples that schedule(static) gives it.
void expect_static_shares(const std::string& name, OmpSum sum) {
  for (const int T : {1, 2, 3, 5})
    for (const std::int64_t N : awkward_sizes(T, name)) {
      Problem problem = integer_problem(N, 2);
      const Watched watched(problem, static_cast<int>(std::min<std::int64_t>(N, T)),
                            omp_get_thread_num);
      sum(problem, T);
      watched.expect_shares(shares_by_openmp(N, T));
      ASSERT_FALSE(testing::Test::HasFailure()) << name << " with " << T << " threads";
    }
}

TEST(MaeOmpCritical, IsExactOnIntegers) { expect_mean("MaeOmpCritical", omp_critical); }
TEST(MaeOmpCritical, ThreadsComputeTheirSharesAtOnce) {
  expect_static_shares("MaeOmpCritical", mae_omp_critical);
}

TEST(MaeOmpCritical, AllThreadsAddToOneSum) { expect_one_sum(omp_critical); }

TEST(MaeOmpAtomic, IsExactOnIntegers) { expect_mean("MaeOmpAtomic", omp_atomic); }
TEST(MaeOmpAtomic, ThreadsComputeTheirSharesAtOnce) {
  expect_static_shares("MaeOmpAtomic", mae_omp_atomic);
}

TEST(MaeOmpAtomic, AllThreadsAddToOneSum) { expect_one_sum(omp_atomic); }

// All critical sections without a name are one, wherever they stand: while somebody is in it, no
// other thread comes in. An atomic addition does not care.
TEST(MaeOmpAtomic, WaitsForNoCriticalSection) {
  const Problem problem = integer_problem(20, 2);
  Event entered, computed;
  bool in_time = true;
  std::jthread other([&] {
#pragma omp critical
    {
      entered.tell();
      in_time = computed.wait();
    }
  });
  const bool begun = entered.wait();
  double mean = 0;
  try {
    mean = mae_omp_atomic(problem, 2);
  } catch (...) {
    computed.tell();
    throw;
  }
  computed.tell();
  other.join();
  EXPECT_TRUE(begun);
  EXPECT_TRUE(in_time) << "it waits while somebody is in a critical section: use omp atomic";
  EXPECT_EQ(exactly(mean), exactly(exact_mean(problem)));
}

TEST(MaeOmpReduction, IsExactOnIntegers) { expect_mean("MaeOmpReduction", omp_reduction); }
TEST(MaeOmpReduction, ThreadsComputeTheirSharesAtOnce) {
  expect_static_shares("MaeOmpReduction", mae_omp_reduction);
}

TEST(MaeOmpReduction, EachThreadHasASumOfItsOwn) { expect_own_sums(omp_reduction); }

// One sample of M features whose products have 24 bits, are exact, and lie up to 2^8 apart: F32,
// which has 24 bits, rounds in nearly each addition.
Problem rough_sample(std::int64_t M) {
  const Philox random(test_seed(), "rough features");
  Problem problem{.N = 1, .M = M, .y = {-123456792.0f}, .b = 98765432.0f};
  for (std::int64_t j = 0; j < M; ++j) {
    const auto index = static_cast<std::uint64_t>(3 * j);
    const auto size = static_cast<float>((1 << 23) + random.below(index, 1 << 23));
    const auto power = static_cast<float>(1 << random.below(index + 1, 9));
    problem.x.push_back(random.below(index + 2, 2) == 0 ? size : -size);
    problem.w.push_back(power);
  }
  return problem;
}

// The contract of error_by_lanes, word by word.
float oracle_by_lanes(const Problem& problem) {
  float lanes[16] = {};
  for (std::size_t j = 0; j < problem.x.size(); ++j) lanes[j % 16] += problem.w[j] * problem.x[j];
  for (const int half : {8, 4, 2, 1})
    for (int l = 0; l < half; ++l) lanes[l] = lanes[l] + lanes[l + half];
  const float distance = problem.b - problem.y[0];
  return std::fabs(lanes[0] + distance);
}

const std::vector<std::int64_t> kAwkwardM = {0, 1, 2, 7, 15, 16, 17, 31, 32, 33, 48, 100};

TEST(ErrorByLanes, IsExactOnIntegers) {
  std::vector<std::int64_t> lengths = kAwkwardM;
  lengths.push_back(drawn("features of ErrorByLanes", 34, 300));
  for (const std::int64_t M : lengths) {
    const Problem problem = integer_problem(4, M);
    for (std::int64_t i = 0; i < problem.N; ++i)
      ASSERT_EQ(error_by_lanes(problem, i), exact_error(problem, i))
          << "sample " << i << ", " << M << " features: is each of them added once?";
  }
}

TEST(ErrorByLanes, EqualsTheOracleBitByBit) {
  std::vector<std::int64_t> lengths = kAwkwardM;
  lengths.push_back(drawn("features of ErrorByLanes", 34, 300));
  for (std::int64_t M = 40; M < 60; ++M) lengths.push_back(M);
  for (const std::int64_t M : lengths) {
    const Problem problem = rough_sample(M);
    const float error = error_by_lanes(problem, 0), oracle = oracle_by_lanes(problem);
    ASSERT_EQ(error, oracle) << M << " features, off by " << error - oracle
                             << ": the additions are not in the order that mae_omp.h tells";
  }
}

// What makes the test above one: on these data the order is seen.
TEST(ErrorByLanes, IsNotTheSumFromLeftToRight) {
  int different = 0;
  for (std::int64_t M = 100; M < 140; ++M) {
    const Problem problem = rough_sample(M);
    different += error_by_lanes(problem, 0) != error_of(problem, 0);
  }
  EXPECT_GE(different, 10) << "so many of 40 sums in two orders differ";
}

TEST(ErrorByLanes, TellsWhichErrorIsAskedFor) {
  Problem problem = integer_problem(5, 20);
  std::vector<std::int64_t> asked;
  problem.watch = [&](std::int64_t i) { asked.push_back(i); };
  for (const std::int64_t i : {3, 0, 4}) error_by_lanes(problem, i);
  EXPECT_EQ(asked, (std::vector<std::int64_t>{3, 0, 4})) << "problem.watch is called once a call";
}

TEST(MaeSimd, IsExactOnIntegers) { expect_mean("MaeSimd", simd); }

TEST(MaeSimd, ThreadsComputeTheirSharesAtOnce) { expect_static_shares("MaeSimd", mae_simd); }

TEST(MaeSimd, EachThreadHasASumOfItsOwn) { expect_own_sums(simd); }

TEST(MaeSimd, AddsTheErrorsByLanes) {
  for (std::int64_t M = 100; M < 110; ++M) {
    const Problem problem = rough_sample(M);
    const double mean = mae_simd(problem, 2), oracle = oracle_by_lanes(problem);
    ASSERT_EQ(mean, oracle) << M << " features, one sample, off by " << mean - oracle
                            << ": is this the sum by lanes?";
  }
}

}  // namespace
}  // namespace aisc
