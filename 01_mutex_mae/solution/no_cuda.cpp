// The sums on a GPU where this program was built without CUDA.
#include "01_mutex_mae/mae_gpu.h"
#include "common/core/error.h"

namespace aisc {
namespace {

[[noreturn]] void no_cuda() {
  fail("mae_gpu: this program was built without CUDA (./aisc build cuda makes one with it)");
}

}  // namespace

double mae_gpu_atomic(const GpuProblem& /*problem*/) { no_cuda(); }
double mae_gpu_blocks(const GpuProblem& /*problem*/) { no_cuda(); }
double mae_gpu_warps(const GpuProblem& /*problem*/) { no_cuda(); }
double mae_gpu_reproducible(const GpuProblem& /*problem*/) { no_cuda(); }

}  // namespace aisc
