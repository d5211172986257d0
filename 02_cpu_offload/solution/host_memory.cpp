#include "02_cpu_offload/host_memory.h"

#include <limits>
#include <utility>

#include "common/model/emulated_device.h"

namespace aisc {
namespace {

// Any size fits, and work takes no virtual time.
Machine host_of(const Machine& machine) {
  constexpr double kAny = std::numeric_limits<double>::infinity();
  Machine host;
  host.name = "the host of " + machine.name;
  for (const auto& [dtype, rate] : machine.flops) host.flops[dtype] = kAny;
  host.vector_flops = host.memory_bandwidth = kAny;
  return host;
}

// Of a device without numbers.
struct NoNumbers {
  NoNumbers(Clock& clock, const Machine& machine)
      : profile(host_of(machine)), memory(clock, profile, {.meta = true}) {}
  const Machine profile;
  EmulatedDevice memory;
};

}  // namespace

std::shared_ptr<Device> host_memory(const Rank& rank) {
  switch (rank.device.kind()) {
    case DeviceKind::Meta: {
      const auto& device = dynamic_cast<const EmulatedDevice&>(rank.device);
      auto host = std::make_shared<NoNumbers>(rank.clock, device.machine());
      return {host, &host->memory};
    }
    case DeviceKind::Cuda:
      return make_pinned_memory();
    case DeviceKind::Cpu:
      break;
  }
  return std::make_shared<CpuDevice>();
}

}  // namespace aisc
