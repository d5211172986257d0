// The machine's GPUs, asked of the CUDA runtime.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "common/core/machine.h"

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

}  // namespace aisc
