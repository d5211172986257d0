#include "common/model/host.h"

#include <limits>
#include <utility>

#include "common/core/error.h"
#include "common/model/emulated_device.h"

namespace aisc {
namespace {

// A rank's share of it. What an optimizer computes there takes the time of its bytes.
Machine host_of_machine(const Machine& machine, int ranks) {
  constexpr double kAny = std::numeric_limits<double>::infinity();
  Machine host;
  host.name = "the host of " + machine.name;
  for (const auto& [dtype, rate] : machine.flops) host.flops[dtype] = kAny;
  host.vector_flops = kAny;
  host.memory_bandwidth = machine.host_bandwidth / ranks;
  host.capacity = machine.host_capacity / ranks;
  return host;
}

struct Slot {
  std::unique_ptr<Host> host;
};

}  // namespace

struct Host::Beside {
  explicit Beside(const EmulatedDevice& device)
      : profile(host_of_machine(device.machine(), device.node_ranks())),
        memory(clock, profile, {.meta = device.kind() == DeviceKind::Meta}) {}
  Clock clock = Clock::virtual_time();
  const Machine profile;
  EmulatedDevice memory;
};

Host::Host(const Rank& rank, std::shared_ptr<Device> memory, std::shared_ptr<Pager> pager)
    : rank_clock_(rank.clock), memory_(std::move(memory)), pager_(std::move(pager)) {
  if (memory_) return;
  if (const auto* emulated = dynamic_cast<const EmulatedDevice*>(&rank.device)) {
    beside_ = std::make_shared<Beside>(*emulated);
    memory_ = {beside_, &beside_->memory};
  } else if (rank.device.kind() == DeviceKind::Cuda) {
    memory_ = make_pinned_memory();
  } else {
    memory_ = std::make_shared<CpuDevice>();
  }
}

void Host::begin() {
  if (beside_) beside_->clock.advance_to(rank_clock_.now());
}

void Host::wait() const {
  if (beside_) rank_clock_.advance_to(beside_->clock.now());
}

void make_host(const Rank& rank, std::shared_ptr<Device> memory, std::shared_ptr<Pager> pager) {
  Slot& slot = rank.device.extension<Slot>();
  if (slot.host) fail("host: it is there already");
  if (rank.clock.is_virtual()) fail("host: memory of one's own takes no virtual time");
  slot.host = std::make_unique<Host>(rank, std::move(memory), std::move(pager));
}

Host& host_of(const Rank& rank) {
  Slot& slot = rank.device.extension<Slot>();
  if (!slot.host) slot.host = std::make_unique<Host>(rank);
  return *slot.host;
}

}  // namespace aisc
