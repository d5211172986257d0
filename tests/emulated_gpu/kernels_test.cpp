// Blocks, barriers and warps of the emulated GPU, and the errors that it finds in kernels.
#include <gmock/gmock.h>

#include <numeric>

#include "emulated_gpu/gpu.h"

namespace aisc::emulated_gpu {
namespace {

using testing::HasSubstr;

// Each test runs a kernel that fails as its last: the device is then as new.
class Kernels : public testing::TestWithParam<Order> {
 protected:
  void TearDown() override { cudaDeviceReset(); }
  Setting<Order> order_{runtime().settings.order, GetParam()};
};
std::string name_of(const testing::TestParamInfo<Order>& order) {
  constexpr const char* kNames[] = {"Forward", "Backward", "Shuffled"};
  return kNames[static_cast<int>(order.param)];
}
INSTANTIATE_TEST_SUITE_P(Orders, Kernels, testing::ValuesIn(kOrders), name_of);

__global__ void number_threads(int* counts, int* numbers) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned i = block * blockDim.x * blockDim.y * blockDim.z + thread;
  atomicAdd(&counts[i], 1);
  numbers[i] = static_cast<int>(i);
}

TEST_P(Kernels, EachThreadOfEachBlockRunsOnce) {
  constexpr std::size_t n = 3 * 2 * 2 * (5 * 3 * 3);
  Array<int> counts(n);
  Array<int> numbers(n);
  ASSERT_EQ(run({3, 2, 2}, {5, 3, 3}, 0, number_threads, counts.data(), numbers.data()),
            cudaSuccess);
  EXPECT_EQ(counts.values(), std::vector<int>(n, 1));
  std::vector<int> expected(n);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(numbers.values(), expected);
}

// The usual sum of a block: by shuffles in warps, then across warps through shared memory.
__global__ void sum_blocks(const int* in, int n, int* sums, int* total) {
  __shared__ int of_warp[32];
  const auto i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  int value = i < n ? in[i] : 0;
  for (int bits = 16; bits > 0; bits /= 2) value += __shfl_xor_sync(~0u, value, bits);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  value = threadIdx.x < blockDim.x / 32 ? of_warp[threadIdx.x] : 0;
  for (unsigned distance = 16; distance > 0; distance /= 2)
    value += __shfl_down_sync(~0u, value, distance);
  if (threadIdx.x > 0) return;
  sums[blockIdx.x] = value;
  atomicAdd(total, value);
}

TEST_P(Kernels, SumOfABlockThroughShufflesAndSharedMemory) {
  constexpr int n = 5000;
  std::vector<int> values(n);
  std::iota(values.begin(), values.end(), 1);
  Array<int> in(values);
  Array<int> sums(5);
  Array<int> total(1);
  ASSERT_EQ(run(5, 1024, 0, sum_blocks, in.data(), n, sums.data(), total.data()), cudaSuccess);
  EXPECT_EQ(total.values()[0], n * (n + 1) / 2);
  EXPECT_EQ(sums.values()[0], 1024 * 1025 / 2);
}

// Turns a block's values round; without the barrier a thread may read what is not written yet.
template <bool with_barrier>
__global__ void turn_round(int* values) {
  auto* shared = gpu::dynamic_shared<int>();
  shared[threadIdx.x] = values[threadIdx.x];
  if (with_barrier) __syncthreads();
  values[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

TEST_P(Kernels, AMissingBarrierGivesAWrongResult) {
  std::vector<int> values(96);
  std::iota(values.begin(), values.end(), 0);
  Array<int> right(values);
  Array<int> wrong(values);
  ASSERT_EQ(run(1, 96, 96 * sizeof(int), turn_round<true>, right.data()), cudaSuccess);
  ASSERT_EQ(run(1, 96, 96 * sizeof(int), turn_round<false>, wrong.data()), cudaSuccess);
  std::reverse(values.begin(), values.end());
  EXPECT_EQ(right.values(), values);
  EXPECT_NE(wrong.values(), values);
}

__global__ void read_shared(unsigned* out, int count) {
  const auto* shared = gpu::dynamic_shared<unsigned>();
  for (int i = 0; i < count; ++i) out[i] = shared[i];
}

TEST_P(Kernels, FreshSharedAndDeviceMemoryIsNotZero) {
  Array<unsigned> out(8);
  ASSERT_EQ(run(1, 1, 32, read_shared, out.data(), 8), cudaSuccess);
  EXPECT_EQ(out.values(), std::vector<unsigned>(8, 0xffffffffu));
  unsigned* fresh = nullptr;
  unsigned first = 0;
  cudaMalloc(&fresh, 64);
  cudaMemcpy(&first, fresh, 4, cudaMemcpyDeviceToHost);
  EXPECT_EQ(first, 0xffffffffu);
  cudaFree(fresh);
}

__global__ void shuffles(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  int* mine = out + lane * 6;
  mine[0] = __shfl_sync(~0u, lane, 7);
  mine[1] = __shfl_sync(~0u, lane, 3, 8);
  mine[2] = __shfl_up_sync(~0u, lane, 3);
  mine[3] = __shfl_down_sync(~0u, lane, 5, 16);
  mine[4] = __shfl_xor_sync(~0u, lane, 9);
  mine[5] = static_cast<int>(__ballot_sync(~0u, lane % 3 == 0));
}

TEST_P(Kernels, ShufflesAndVotesAreThoseOfTheProgrammingGuide) {
  Array<int> out(32 * 6);
  ASSERT_EQ(run(1, 32, 0, shuffles, out.data()), cudaSuccess);
  const auto values = out.values();
  for (int lane = 0; lane < 32; ++lane) {
    const int* mine = values.data() + lane * 6;
    EXPECT_EQ(mine[0], 7);
    EXPECT_EQ(mine[1], lane / 8 * 8 + 3);
    EXPECT_EQ(mine[2], lane < 3 ? lane : lane - 3);
    EXPECT_EQ(mine[3], lane % 16 + 5 < 16 ? lane + 5 : lane);
    EXPECT_EQ(mine[4], lane ^ 9);
    EXPECT_EQ(mine[5], 0x49249249);
  }
}

// Half a warp exchanges values while the other half does something else. The second warp has 16
// lanes.
__global__ void half_warps(int* out) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  int* mine = out + threadIdx.x;
  if (lane < 16)
    *mine = __shfl_xor_sync(0x0000ffffu, lane, 1);
  else
    *mine = __shfl_xor_sync(0xffff0000u, lane, 2);
  __syncwarp();
}

TEST_P(Kernels, LanesInTheMaskNeedNotBeAll) {
  Array<int> out(48);
  ASSERT_EQ(run(1, 48, 0, half_warps, out.data()), cudaSuccess);
  const auto values = out.values();
  for (int lane = 0; lane < 32; ++lane)
    EXPECT_EQ(values[static_cast<std::size_t>(lane)], lane ^ (lane < 16 ? 1 : 2));
}

__global__ void return_early(int* out) {
  if (threadIdx.x % 2 == 1) return;
  __syncthreads();
  out[threadIdx.x] = 1;
  out[threadIdx.x] += __shfl_sync(~0u, 5, 0);           // lane 0 is here
  out[threadIdx.x + 1] = __shfl_sync(~0u, 5, 1) == -1;  // lane 1 is not
}

TEST_P(Kernels, ThreadsThatHaveReturnedAreNotWaitedFor) {
  Array<int> out(64);
  ASSERT_EQ(run(1, 64, 0, return_early, out.data()), cudaSuccess);
  const auto values = out.values();
  for (std::size_t i = 0; i < 64; i += 2) {
    EXPECT_EQ(values[i], 6);
    EXPECT_EQ(values[i + 1], 1);
  }
}

__global__ void atomics(float* sum, unsigned long long* count) {
  atomicAdd(sum, 0.5f);
  if (atomicCAS(count, 0ull, 5ull) != 0ull) atomicAdd(count, 1ull);
}

TEST_P(Kernels, Atomics) {
  Array<float> sum(1);
  Array<unsigned long long> count(1);
  ASSERT_EQ(run(2, 64, 0, atomics, sum.data(), count.data()), cudaSuccess);
  EXPECT_EQ(sum.values()[0], 64);
  EXPECT_EQ(count.values()[0], 5u + 127u);
}

// ---- errors -------------------------------------------------------------------------------------

// What a launch writes on stderr; the launch must fail with `expected`.
template <class Launch>
std::string report_of(cudaError_t expected, Launch launch) {
  testing::internal::CaptureStderr();
  const cudaError_t error = launch();
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(error, expected) << text;
  return text;
}

__global__ void divergent_barrier(int* out) {
  if (threadIdx.x < 40)
    __syncthreads();
  else
    __syncthreads();
  out[0] = 1;
}

TEST_P(Kernels, ADivergentBarrierIsNamed) {
  Array<int> out(1);
  const auto text = report_of(cudaErrorLaunchFailure,
                              [&] { return run(2, 64, 0, divergent_barrier, out.data()); });
  EXPECT_THAT(text, HasSubstr("divergent_barrier(int*), block ("));
  EXPECT_THAT(text, HasSubstr("wait at different barriers"));
  EXPECT_THAT(text, HasSubstr("40 of 64 threads, first (0, 0, 0): __syncthreads at "));
  EXPECT_THAT(text, HasSubstr("24 of 64 threads, first (40, 0, 0): __syncthreads at "));
}

__global__ void divergent_shuffle(int* out) {
  if (threadIdx.x == 3)
    __syncthreads();
  else
    out[0] = __shfl_sync(~0u, 1, 0);
}

TEST_P(Kernels, LanesThatWaitInVainAreNamedAndStopNothingElse) {
  Array<int> out(1);
  const auto text = report_of(cudaErrorLaunchFailure,
                              [&] { return run(1, 32, 0, divergent_shuffle, out.data()); });
  EXPECT_THAT(text, HasSubstr("lanes of a warp wait for each other in vain"));
  EXPECT_THAT(text, HasSubstr("1 of 32 threads, first (3, 0, 0): __syncthreads at "));
  EXPECT_THAT(text,
              HasSubstr("31 of 32 threads, first (0, 0, 0): __shfl_sync of lanes 0xffffffff"));
  // The error stays, until the device is reset.
  EXPECT_EQ(run(1, 32, 0, divergent_shuffle, out.data()), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
  std::vector<int> values(96);
  Array<int> right(values);
  EXPECT_EQ(run(1, 96, 96 * sizeof(int), turn_round<true>, right.data()), cudaSuccess);
}

__global__ void two_operations(int* out) {
  if (threadIdx.x < 16)
    out[0] = __shfl_sync(~0u, 1, 0);
  else
    out[0] = static_cast<int>(__ballot_sync(~0u, 1));
}

TEST_P(Kernels, LanesAtDifferentOperationsDoNotMeet) {
  Array<int> out(1);
  const auto text =
      report_of(cudaErrorLaunchFailure, [&] { return run(1, 32, 0, two_operations, out.data()); });
  EXPECT_THAT(text, HasSubstr("16 of 32 threads, first (0, 0, 0): __shfl_sync of lanes"));
  EXPECT_THAT(text, HasSubstr("16 of 32 threads, first (16, 0, 0): __ballot_sync of lanes"));
}

__global__ void product_of_half_a_warp(float* out) {
  if (threadIdx.x >= 16) return;
  const std::uint32_t a[4] = {};
  const std::uint32_t b[2] = {};
  float d[4] = {};
  gpu::mma_bf16(d, a, b);
  out[0] = d[0];
}

TEST_P(Kernels, TensorCoresNeedTheWholeWarp) {
  Array<float> out(1);
  EXPECT_THAT(report_of(cudaErrorLaunchFailure,
                        [&] { return run(1, 32, 0, product_of_half_a_warp, out.data()); }),
              HasSubstr("16 of 32 threads, first (0, 0, 0): mma_bf16 of lanes 0xffffffff"));
}

__global__ void read_unaligned(const float* in, float* out) {
  out[0] = __ldg(reinterpret_cast<const float4*>(in + 1)).x;
}

TEST_P(Kernels, AnAddressThatIsNotAlignedIsAnError) {
  Array<float> in(8);
  Array<float> out(1);
  EXPECT_THAT(report_of(cudaErrorMisalignedAddress,
                        [&] { return run(1, 1, 0, read_unaligned, in.data(), out.data()); }),
              HasSubstr("thread (0, 0, 0): an address that is not a multiple"));
}

TEST_P(Kernels, LimitsOfALaunch) {
  Array<int> out(2048);
  const auto launch = [&](dim3 grid, dim3 block, std::size_t shared_bytes) {
    return run(grid, block, shared_bytes, turn_round<true>, out.data());
  };
  EXPECT_THAT(report_of(cudaErrorInvalidConfiguration, [&] { return launch(1, 1025, 0); }),
              HasSubstr("grid (1, 1, 1), block (1025, 1, 1)"));
  report_of(cudaErrorInvalidConfiguration, [&] { return launch({1, 65536}, 1, 0); });
  report_of(cudaErrorInvalidConfiguration, [&] { return launch(0, 32, 0); });
  EXPECT_THAT(report_of(cudaErrorInvalidValue, [&] { return launch(1, 32, 48 * 1024 + 1); }),
              HasSubstr("49153 bytes of dynamic shared memory, the kernel's limit is 49152"));
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  report_of(cudaErrorInvalidValue, [&] {
    return cudaFuncSetAttribute(turn_round<true>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                227 * 1024 + 1);
  });
  ASSERT_EQ(cudaFuncSetAttribute(turn_round<true>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 227 * 1024),
            cudaSuccess);
  EXPECT_EQ(launch(1, 32, 227 * 1024), cudaSuccess);
  cudaFuncSetAttribute(turn_round<true>, cudaFuncAttributeMaxDynamicSharedMemorySize, 0);
}

}  // namespace
}  // namespace aisc::emulated_gpu
