// The machine's GPUs, asked of the CUDA runtime.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "common/core/cuda/check.h"
#include "common/core/cuda/cuda_device.h"
#include "common/core/system/machine.h"

namespace aisc {

std::string describe_gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) return {};  // no driver: no GPU
  std::string lines;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp p{};
    if (cudaGetDeviceProperties(&p, i) != cudaSuccess) continue;
    lines += fmt::format("{}: {}, compute capability {}.{}, {} multiprocessors, {:.1f} GiB\n", i,
                         p.name, p.major, p.minor, p.multiProcessorCount,
                         static_cast<double>(p.totalGlobalMem) / (1 << 30));
  }
  return lines;
}

std::optional<GpuFacts> gpu_facts(const Device& device) {
  if (device.kind() != DeviceKind::Cuda) return {};
  const int index = static_cast<const CudaDevice&>(device).index();
  cudaDeviceProp properties{};
  int driver = 0, runtime = 0;
  std::size_t free = 0, total = 0;
  check_cuda(cudaSetDevice(index), device.name());
  check_cuda(cudaGetDeviceProperties(&properties, index), device.name());
  check_cuda(cudaDriverGetVersion(&driver), device.name());
  check_cuda(cudaRuntimeGetVersion(&runtime), device.name());
  check_cuda(cudaMemGetInfo(&free, &total), device.name());
  const auto version = [](int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); };
  return GpuFacts{.name = properties.name,
                  .driver = version(driver),
                  .runtime = version(runtime),
                  .used_bytes = static_cast<std::int64_t>(total - free),
                  .total_bytes = static_cast<std::int64_t>(total)};
}

}  // namespace aisc
