// The machine's GPUs when the program is built without CUDA: none that it could see.
#include "common/core/error.h"
#include "common/core/make_cuda_device.h"
#include "common/core/system/machine.h"

namespace aisc {

std::string describe_gpus() { return {}; }

std::optional<GpuFacts> gpu_facts(const Device& /*device*/) { return {}; }

int gpu_count() { return 0; }

std::unique_ptr<Device> make_cuda_device(const DeviceOptions& /*options*/, int /*node_rank*/) {
  fail("cuda: this program was built without CUDA (./aisc build cuda makes one with it)");
}

std::unique_ptr<Device> make_pinned_memory() { return std::make_unique<CpuDevice>(); }

}  // namespace aisc
