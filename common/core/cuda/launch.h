// Starting a kernel: kernel<<<grid, block, shared_bytes, stream>>>(arguments...) as a function that
// says what failed, and that is plain C++.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "common/core/cuda/check.h"

namespace aisc {

// A grid or block of 0 is nothing to do. `what` is for errors: the operation. Beyond 48 KiB of
// shared memory, 16 left for what the kernel declares, it is given leave to use them.
template <class... Parameters, class... Arguments>
void launch_kernel(const char* what, cudaStream_t stream, dim3 grid, dim3 block,
                   std::size_t shared_bytes, void (*kernel)(Parameters...),
                   Arguments... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  if (shared_bytes > 32 * 1024)
    check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shared_bytes)),
               what);
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  check_cuda(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), what);
}

}  // namespace aisc
