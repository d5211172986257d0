// Errors of the CUDA runtime as exceptions.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "common/core/error.h"

namespace aisc {

// Throws Error "cuda: <what>: <CUDA's name of the error>: <its text>" unless `status` is success.
inline void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // or the next call would report it once more
  fail(std::string("cuda: ") + what + ": " + cudaGetErrorName(status) + ": " +
       cudaGetErrorString(status));
}

}  // namespace aisc
