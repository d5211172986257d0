// What a .cu file sees of the emulated GPU: the runtime, and the words of CUDA C++ as plain C++.
// Threads of a block are fibers of one OS thread, so that shared memory is thread-local.
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

#include "cuda_runtime_api.h"
#include "emulated_kernel.h"
#include "emulated_math.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static thread_local
#define __launch_bounds__(...)

template <class... Expected, class... Given>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Expected...),
                               Given&&... given) {
  return aisc::emulated_gpu::launch(
      *config, reinterpret_cast<const void*>(kernel),
      [kernel, arguments = std::tuple<std::decay_t<Expected>...>(std::forward<Given>(given)...)] {
        std::apply(kernel, arguments);
      });
}

template <class T>
cudaError_t cudaMalloc(T** devPtr, std::size_t size) {
  return cudaMalloc(reinterpret_cast<void**>(devPtr), size);
}
template <class T>
cudaError_t cudaHostAlloc(T** pHost, std::size_t size, unsigned flags) {
  return cudaHostAlloc(reinterpret_cast<void**>(pHost), size, flags);
}
template <class T>
cudaError_t cudaFuncSetAttribute(T* func, cudaFuncAttribute attr, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(func), attr, value);
}
