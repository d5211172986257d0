// How a problem gets to a GPU; the sums are in cuda/mae_gpu.cu.
#include "01_mutex_mae/mae_gpu.h"

#include <algorithm>

namespace aisc {

GpuProblem::GpuProblem(const Problem& problem, Device& gpu)
    : N(problem.N),
      M(problem.M),
      x({M, N}, DType::F32, gpu),
      y({N}, DType::F32, gpu),
      w({M}, DType::F32, gpu),
      b(problem.b) {
  CpuDevice host;
  const Tensor turned({M, N}, DType::F32, host);
  float* to = turned.data<float>();
  for (std::int64_t i = 0; i < N; ++i)
    for (std::int64_t j = 0; j < M; ++j)
      to[j * N + i] = problem.x[static_cast<std::size_t>(i * M + j)];
  gpu.copy(x, turned);
  gpu.copy(y, ConstView(problem.y.data(), {N}, DType::F32, host));
  gpu.copy(w, ConstView(problem.w.data(), {M}, DType::F32, host));
}

std::int64_t gpu_blocks(std::int64_t N) {
  const std::int64_t samples = kGpuThreads * kGpuSamples;  // of a block
  return std::min(kGpuMostBlocks, (N + samples - 1) / samples);
}

}  // namespace aisc
