#include "tests/core/cuda/raise_fault.h"

#include "common/core/cuda/fault.h"
#include "common/core/cuda/launch.h"

namespace aisc {
namespace {

__global__ void raise_each(Fault* fault, const char* text, int first) {
  gpu::raise(fault, text, 0, first + static_cast<int>(threadIdx.x), 10);
}

}  // namespace

void raise_fault(CudaDevice& device, const char* text, int first, int threads) {
  launch_kernel("raise_fault", device.stream(), 1, static_cast<unsigned>(threads), 0, raise_each,
                device.fault(), text, first);
}

}  // namespace aisc
