// Launching kernels.
#include <fmt/format.h>

#include <cstring>

#include "emulated_gpu/runtime.h"

namespace aisc::emulated_gpu {
namespace {

bool is_possible(const dim3& grid, const dim3& block) {
  return grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x <= 0x7fffffff && grid.y <= 65535 &&
         grid.z <= 65535 && block.x > 0 && block.y > 0 && block.z > 0 && block.x <= 1024 &&
         block.y <= 1024 && block.z <= 64 && std::uint64_t{block.x} * block.y * block.z <= 1024;
}

}  // namespace

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel,
                   std::function<void()> thread) {
  CUstream_st& stream = stream_of(config.stream);
  if (const auto error = device_error(stream.device); error != cudaSuccess) return finish(error);
  if (stream.device != current_device())
    return complain(cudaErrorInvalidResourceHandle,
                    fmt::format("launch of {}: the stream belongs to device {}, current is {}",
                                symbol_name(kernel), stream.device, current_device()));
  if (!is_possible(config.gridDim, config.blockDim))
    return complain(
        cudaErrorInvalidConfiguration,
        fmt::format("launch of {}: grid ({}, {}, {}), block ({}, {}, {})", symbol_name(kernel),
                    config.gridDim.x, config.gridDim.y, config.gridDim.z, config.blockDim.x,
                    config.blockDim.y, config.blockDim.z));
  if (const auto limit = runtime().shared_limit(kernel); config.dynamicSmemBytes > limit)
    return complain(
        cudaErrorInvalidValue,
        fmt::format("launch of {}: {} bytes of dynamic shared memory, the kernel's limit is {}",
                    symbol_name(kernel), config.dynamicSmemBytes, limit));
  const Grid grid{.blocks = config.gridDim,
                  .threads = config.blockDim,
                  .shared_bytes = config.dynamicSmemBytes,
                  .kernel = kernel,
                  .thread = std::move(thread),
                  .order = runtime().settings.order};
  stream.enqueue({[grid] { return block_runner().run(grid); }});
  return cudaSuccess;
}

}  // namespace aisc::emulated_gpu

extern "C" {

cudaError_t cudaFuncSetAttribute(const void* func, cudaFuncAttribute attr, int value) {
  using namespace aisc::emulated_gpu;
  if (func == nullptr) return finish(cudaErrorInvalidDeviceFunction);
  if (attr != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      static_cast<std::size_t>(value) > runtime().settings.most_shared_bytes)
    return complain(cudaErrorInvalidValue,
                    fmt::format("cudaFuncSetAttribute of {}: {} for attribute {}",
                                symbol_name(func), value, int{attr}));
  runtime().set_shared_limit(func, static_cast<std::size_t>(value));
  return cudaSuccess;
}

}  // extern "C"
