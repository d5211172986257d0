// The mean absolute error on a GPU, whose some hundred thousand threads add to one number. The four
// ways are those of the processor once more: an atomic addition for each sample, a sum for each
// block of threads (in shared memory, or in registers by shuffles), and one whose order is fixed.
// README.md, section "On a GPU", tells what each costs.
#pragma once

#include <string>
#include <vector>

#include "01_mutex_mae/problem.h"
#include "common/core/tensor.h"

namespace aisc {

// A problem in the memory of a GPU, features first: neighbouring threads have neighbouring samples
// and ask for the same feature of them at once, which then lies side by side. `watch` is not called
// there.
struct GpuProblem {
  GpuProblem(const Problem& problem, Device& gpu);  // copies; the device must outlive it

  std::int64_t N, M;
  Tensor x;  // (M, N)
  Tensor y;  // (N)
  Tensor w;  // (M)
  float b;
};

// Threads of a block, and samples of a thread, below which there are no more blocks. Both are fixed
// and the number of blocks depends on N alone, so that the reproducible sum is the same on every
// GPU.
inline constexpr int kGpuThreads = 256;
inline constexpr std::int64_t kGpuSamples = 8, kGpuMostBlocks = 2048;
std::int64_t gpu_blocks(std::int64_t N);

// The four, each over when it returns. Errors are F32, as error_of's but for products that may be
// fused with their additions; all sums are F64, all results 0 for N = 0. Throw Error where this
// program was built without CUDA, or the problem is not on a GPU.

// Each thread adds the error of each of its samples to one sum: N atomic additions.
double mae_gpu_atomic(const GpuProblem& problem);
// Each thread has a sum of its own; the threads of a block add theirs by a tree in shared memory,
// and one of them adds the block's to the sum of all: an atomic addition for each block.
double mae_gpu_blocks(const GpuProblem& problem);
// The same, but the 32 threads of a warp add theirs by shuffles, from register to register.
double mae_gpu_warps(const GpuProblem& problem);
// As before, but a block's sum goes to a place of its own, and the block that is done last adds
// them all: bitwise the same in every run, one pass, one counter. The order: thread k of all K has
// samples k, k + K, ...; in a warp lane l takes what lane l + 16 has, then l + 8, 4, 2, 1; the
// warps of a block are added likewise, as are the threads of the last block, of which thread k has
// the sums of blocks k, k + 256, ...
double mae_gpu_reproducible(const GpuProblem& problem);

struct GpuVariant {
  std::string name;  // "gpu warps"
  std::string what;
  double (*run)(const GpuProblem& problem);
};
inline std::vector<GpuVariant> gpu_variants() {
  return {{"gpu atomic", "one sum, an atomic addition each", mae_gpu_atomic},
          {"gpu blocks", "a tree in shared memory a block", mae_gpu_blocks},
          {"gpu warps", "shuffles in a warp, then the block", mae_gpu_warps},
          {"gpu reproducible", "the last block adds, in order", mae_gpu_reproducible}};
}

}  // namespace aisc
