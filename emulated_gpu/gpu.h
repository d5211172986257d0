// What the tests of the emulated GPU share: launching, memory, and settings for one test.
#pragma once

#include <gtest/gtest.h>

#include <gpu/intrinsics.h>

#include <algorithm>
#include <string>
#include <vector>

#include "emulated_gpu/runtime.h"

namespace aisc::emulated_gpu {

inline constexpr Order kOrders[] = {Order::Forward, Order::Backward, Order::Shuffled};

template <class... Parameters, class... Arguments>
cudaError_t launch_on(cudaStream_t stream, dim3 grid, dim3 block, std::size_t shared_bytes,
                      void (*kernel)(Parameters...), Arguments... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

// Launches and waits.
template <class... Parameters, class... Arguments>
cudaError_t run(dim3 grid, dim3 block, std::size_t shared_bytes, void (*kernel)(Parameters...),
                Arguments... arguments) {
  const auto error = launch_on(nullptr, grid, block, shared_bytes, kernel, arguments...);
  return error == cudaSuccess ? cudaDeviceSynchronize() : error;
}

// An array on the current device.
template <class T>
class Array {
 public:
  explicit Array(std::size_t count, T value = T{}) : Array(std::vector<T>(count, value)) {}
  explicit Array(const std::vector<T>& values) : count_(values.size()) {
    EXPECT_EQ(cudaMalloc(&data_, count_ * sizeof(T)), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  ~Array() { cudaFree(data_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  T* data() { return data_; }
  std::vector<T> values() const {
    std::vector<T> values(count_);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return values;
  }

 private:
  std::size_t count_;
  T* data_ = nullptr;
};

// Sets a setting until the end of the scope.
template <class T>
class Setting {
 public:
  Setting(std::atomic<T>& setting, T value) : setting_(setting), before_(setting.exchange(value)) {}
  ~Setting() { setting_ = before_; }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  std::atomic<T>& setting_;
  T before_;
};

}  // namespace aisc::emulated_gpu
