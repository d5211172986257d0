// The sums on a GPU, on problems whose sums are exact in any order, or within what rounding allows.
#include "01_mutex_mae/gpu_rates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/01_mutex_mae/exact_problem.h"
#include "tests/01_mutex_mae/watched.h"

namespace aisc {
namespace {

double serial_mean(const Problem& problem) {
  double sum = 0;
  for (std::int64_t i = 0; i < problem.N; ++i) sum += static_cast<double>(error_of(problem, i));
  return mean_error(sum, problem.N);
}

class MaeGpu : public ::testing::TestWithParam<GpuVariant> {
 protected:
  void SetUp() override {
    if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
    device_ = make_device({.kind = DeviceKind::Cuda, .poison = true});
  }
  double run(const Problem& problem) { return GetParam().run(GpuProblem(problem, *device_)); }

  std::unique_ptr<Device> device_;
};

// Around a warp, a block, a thread's eight samples, and one grid: 2048 blocks of 256 threads.
TEST_P(MaeGpu, IsExactOnIntegers) {
  for (const std::int64_t N : {0, 1, 2, 31, 32, 33, 255, 256, 257, 2047, 2048, 2049, 5000})
    for (const std::int64_t M : {0, 1, 7}) {
      const Problem problem = integer_problem(N, M);
      EXPECT_EQ(run(problem), serial_mean(problem)) << N << " samples of " << M;
    }
}

TEST_P(MaeGpu, IsExactWhereThreadsHaveManySamples) {
  const Problem problem = integer_problem(kGpuMostBlocks * kGpuThreads * kGpuSamples / 8 + 13, 1);
  EXPECT_EQ(run(problem), serial_mean(problem));
}

// The F64 sum of 2^12 numbers in another order, and products fused with their additions.
TEST_P(MaeGpu, AgreesWithTheProcessor) {
  const Problem problem = make_problem(4096 + 5, 33);
  const double expected = serial_mean(problem);
  EXPECT_NEAR(run(problem), expected, 1e-5 * expected);
}

INSTANTIATE_TEST_SUITE_P(All, MaeGpu, ::testing::ValuesIn(gpu_variants()), [](const auto& test) {
  std::string name = test.param.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
});

// values[l] += values[l + d] for l < d, d = 16, 8, 4, 2, 1: what shuffles leave in lane 0.
double oracle_of_warp(std::vector<double> values) {
  values.resize(32);
  for (std::size_t d = 16; d > 0; d /= 2)
    for (std::size_t l = 0; l < d; ++l) values[l] += values[l + d];
  return values[0];
}

double oracle_of_block(const std::vector<double>& of_threads) {
  std::vector<double> of_warps;
  for (auto warp = of_threads.begin(); warp != of_threads.end(); warp += 32)
    of_warps.push_back(oracle_of_warp({warp, warp + 32}));
  return oracle_of_warp(of_warps);
}

// The additions in the order that the header tells.
double oracle_on_gpu(const Problem& problem) {
  const auto blocks = static_cast<std::size_t>(gpu_blocks(problem.N));
  std::vector<double> of_threads(blocks * kGpuThreads), last(kGpuThreads);
  for (std::int64_t i = 0; i < problem.N; ++i)
    of_threads[static_cast<std::size_t>(i) % of_threads.size()] +=
        static_cast<double>(error_of(problem, i));
  for (std::size_t k = 0; k < blocks; ++k) {
    const auto block = of_threads.begin() + static_cast<std::ptrdiff_t>(k) * kGpuThreads;
    last[k % kGpuThreads] += oracle_of_block({block, block + kGpuThreads});
  }
  return mean_error(oracle_of_block(last), problem.N);
}

// Errors that lie 2^60 apart: each addition rounds, and another order has other bits.
TEST(MaeGpuReproducible, EqualsTheOracleBitByBitEachTime) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  const auto gpu = make_device({.kind = DeviceKind::Cuda, .poison = true});
  for (const std::int64_t N :
       {std::int64_t{1}, std::int64_t{255}, std::int64_t{2049}, std::int64_t{10'000},
        drawn("samples of MaeGpu", 600'000, 700'000)}) {
    const Problem problem = rough_problem(N);
    const double oracle = oracle_on_gpu(problem);
    EXPECT_NEAR(oracle, serial_mean(problem), 1e-9 * oracle);
    const GpuProblem there(problem, *gpu);
    for (int again = 0; again < 3; ++again)
      EXPECT_EQ(exactly(mae_gpu_reproducible(there)), exactly(oracle)) << N << " samples";
  }
}

TEST(GpuRates, AreOfEverySumAndOfTheBytesItReads) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  const auto gpu = make_device({.kind = DeviceKind::Cuda});
  const GpuRates rates = measure_on_gpu(make_problem(300, 5), *gpu, 1);
  EXPECT_GT(rates.copy_bytes_per_second, 0);
  ASSERT_EQ(rates.sums.size(), gpu_variants().size());
  for (const GpuRate& rate : rates.sums)
    EXPECT_NEAR(rate.bytes_per_second * rate.seconds, 300 * 4 * (5 + 1), 1e-6);
}

}  // namespace
}  // namespace aisc
