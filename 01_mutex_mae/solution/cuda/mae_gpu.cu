// Four kernels for one sum. Each reads 4 M + 4 bytes a sample, once, and nothing again; they differ
// in how the threads' sums meet. Share of bandwidth: the demo and the benchmark of this module
// measure it; not measured yet.
#include "01_mutex_mae/mae_gpu.h"
#include "common/core/cuda/cuda_device.h"
#include "common/core/cuda/launch.h"
#include "common/core/error.h"

namespace aisc {
namespace {

constexpr int kWarp = 32, kWarps = kGpuThreads / kWarp;
constexpr unsigned kAllLanes = 0xffffffffu;

// The problem as kernels see it.
struct Samples {
  const float *x, *y, *w;
  float b;
  long long N, M;
};

__device__ __forceinline__ float error_at(const Samples& s, long long i) {
  float sum = s.b - __ldg(s.y + i);
  for (long long j = 0; j < s.M; ++j) sum += __ldg(s.w + j) * __ldg(s.x + j * s.N + i);
  return fabsf(sum);
}

// Thread k of all K has samples k, k + K, ...: in each round the threads of a warp have 32
// neighbours, 128 bytes of each feature.
__device__ __forceinline__ long long first_sample() {
  return static_cast<long long>(blockIdx.x) * kGpuThreads + threadIdx.x;
}
__device__ __forceinline__ long long all_threads() {
  return static_cast<long long>(gridDim.x) * kGpuThreads;
}
__device__ __forceinline__ double sum_of_thread(const Samples& s) {
  double sum = 0;
  for (long long i = first_sample(); i < s.N; i += all_threads())
    sum += static_cast<double>(error_at(s, i));
  return sum;
}

// In five steps: after the first, lanes 0 to 15 have the sums of two, ..., after the last lane 0
// has all 32. No memory, no barrier: the lanes of a warp hand registers to each other.
__device__ __forceinline__ double sum_of_warp(double sum) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    sum += __shfl_down_sync(kAllLanes, sum, distance);
  return sum;
}

// The sum of the block's threads, in thread 0. Eight warps meet in shared memory, once.
__device__ __forceinline__ double sum_of_block(double sum) {
  __shared__ double of_warps[kWarps];
  sum = sum_of_warp(sum);
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = sum;
  __syncthreads();
  if (threadIdx.x < kWarp) sum = sum_of_warp(threadIdx.x < kWarps ? of_warps[threadIdx.x] : 0.0);
  return sum;
}

__global__ __launch_bounds__(kGpuThreads) void add_each(Samples s, double* sum) {
  for (long long i = first_sample(); i < s.N; i += all_threads())
    atomicAdd(sum, static_cast<double>(error_at(s, i)));
}

__global__ __launch_bounds__(kGpuThreads) void add_blocks(Samples s, double* sum) {
  __shared__ double sums[kGpuThreads];
  const int thread = static_cast<int>(threadIdx.x);
  sums[thread] = sum_of_thread(s);
  for (int half = kGpuThreads / 2; half > 0; half /= 2) {
    __syncthreads();  // nobody reads what is not written yet
    if (thread < half) sums[thread] += sums[thread + half];
  }
  if (thread == 0) atomicAdd(sum, sums[0]);
}

__global__ __launch_bounds__(kGpuThreads) void add_warps(Samples s, double* sum) {
  const double of_block = sum_of_block(sum_of_thread(s));
  if (threadIdx.x == 0) atomicAdd(sum, of_block);
}

// A block writes its sum, then says so: the fence between the two makes whoever sees the counter
// see the sum, too. The block that finds all others counted is the last, and the only one that
// reads. Who that is changes from run to run; what it adds, and in which order, does not.
__global__ __launch_bounds__(kGpuThreads) void add_in_order(Samples s, double* sum, double* sums,
                                                            unsigned* done) {
  __shared__ bool is_last;
  const double of_block = sum_of_block(sum_of_thread(s));
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = of_block;
    __threadfence();
    is_last = atomicAdd(done, 1u) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (!is_last) return;
  double all = 0;
  for (unsigned k = threadIdx.x; k < gridDim.x; k += kGpuThreads) all += __ldcg(sums + k);
  all = sum_of_block(all);
  if (threadIdx.x == 0) *sum = all;
}

// Calls launch(stream, blocks, samples, sum), which has the GPU add to *sum, and waits for the
// mean.
template <class Launch>
double mean(const GpuProblem& p, Launch launch) {
  Device& gpu = p.x.device();
  if (gpu.kind() != DeviceKind::Cuda)
    fail(std::string("mae_gpu: the problem is on ") + gpu.name() + ", expected on a GPU");
  if (p.N == 0) return 0;
  const Tensor sum = Tensor::zeros({1}, DType::F64, gpu);
  const Samples samples{static_cast<const float*>(p.x.view().raw()),
                        static_cast<const float*>(p.y.view().raw()),
                        static_cast<const float*>(p.w.view().raw()),
                        p.b,
                        p.N,
                        p.M};
  launch(as_cuda(gpu).stream(), dim3(static_cast<unsigned>(gpu_blocks(p.N))), samples,
         static_cast<double*>(sum.view().raw()));
  CpuDevice host;
  double result = 0;
  gpu.copy(View(&result, {1}, DType::F64, host), sum);
  return mean_error(result, p.N);
}

template <class Kernel>
double mean_by(Kernel kernel, const GpuProblem& problem) {
  return mean(problem, [&](cudaStream_t stream, dim3 blocks, const Samples& samples, double* sum) {
    launch_kernel("mae_gpu", stream, blocks, dim3(kGpuThreads), 0, kernel, samples, sum);
  });
}

}  // namespace

double mae_gpu_atomic(const GpuProblem& problem) { return mean_by(add_each, problem); }
double mae_gpu_blocks(const GpuProblem& problem) { return mean_by(add_blocks, problem); }
double mae_gpu_warps(const GpuProblem& problem) { return mean_by(add_warps, problem); }

double mae_gpu_reproducible(const GpuProblem& problem) {
  return mean(problem, [&](cudaStream_t stream, dim3 blocks, const Samples& samples, double* sum) {
    Device& gpu = problem.x.device();
    const Tensor sums({static_cast<std::int64_t>(blocks.x)}, DType::F64, gpu);
    const Tensor done = Tensor::zeros({1}, DType::I32, gpu);
    launch_kernel("mae_gpu", stream, blocks, dim3(kGpuThreads), 0, add_in_order, samples, sum,
                  static_cast<double*>(sums.view().raw()),
                  static_cast<unsigned*>(done.view().raw()));
  });
}

}  // namespace aisc
