#include "common/model/emulated_device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "common/core/error.h"
#include "common/core/tensor.h"
#include "common/model/timed.h"

namespace aisc {
namespace {

constexpr std::size_t kAligned = 64;
constexpr double kTimeoutSeconds = 600;  // many ranks that compute share few cores
constexpr std::size_t kStackBytes = std::size_t{8} << 20;          // of kernels
constexpr std::uintptr_t kFirstAddress = std::uintptr_t{1} << 48;  // where no program's memory is

// The bytes of an end of a copy, where there are any.
bool has_bytes(const ConstView& view) { return view.device().kind() != DeviceKind::Meta; }

void move_bytes(const View& to, const ConstView& from) {
  if (!has_bytes(to)) return;
  if (has_bytes(from))
    std::memmove(to.raw(), from.raw(), to.bytes());
  else
    std::memset(to.raw(), 0, to.bytes());
}

}  // namespace

class EmulatedDevice::LateCopy final : public TimedOperation {
 public:
  LateCopy(Clock& clock, View to, ConstView from, double end)
      : TimedOperation(clock, end), to_(to), from_(from) {
    if (has_bytes(to)) std::memset(to.raw(), 0xff, to.bytes());
  }

 private:
  void finish(double) override { move_bytes(to_, from_); }

  const View to_;
  const ConstView from_;
};

EmulatedDevice::EmulatedDevice(Clock& clock, const Machine& machine, const EmulatedOptions& options)
    : Device(static_cast<std::int64_t>(machine.capacity), true),
      clock_(clock),
      machine_(machine),
      options_(options),
      name_(machine.name + (options.meta ? " (meta)" : " (emulated)")),
      next_address_(kFirstAddress) {
  if (!clock.is_virtual())
    fail("an emulated " + machine.name + " needs a clock in virtual time, found the wall's");
}

EmulatedDevice::~EmulatedDevice() { trim(); }

void* EmulatedDevice::do_allocate(std::size_t bytes) {
  const std::size_t rounded = (std::max(bytes, kAligned) + kAligned - 1) / kAligned * kAligned;
  if (!options_.meta) return std::aligned_alloc(kAligned, rounded);
  const std::uintptr_t address = std::exchange(next_address_, next_address_ + rounded);
  return reinterpret_cast<void*>(address);  // NOLINT: nobody reads or writes there
}

void EmulatedDevice::do_free(void* block) noexcept {
  if (!options_.meta) std::free(block);
}

void EmulatedDevice::do_poison(void* block, std::size_t bytes) {
  if (options_.poison && !options_.meta) std::memset(block, 0xff, bytes);
}

void EmulatedDevice::do_zero(void* block, std::size_t bytes) {
  if (!options_.meta && bytes > 0) std::memset(block, 0, bytes);
}

void EmulatedDevice::do_charge(const OpCost& cost) { clock_.advance(machine_.seconds(cost)); }

Work EmulatedDevice::do_copy(View to, ConstView from, Queue queue) {
  const auto bytes = static_cast<double>(to.bytes());
  if (&to.device() == this && &from.device() == this) {
    move_bytes(to, from);
    return Work();
  }
  double& lane_free = &to.device() == this ? to_device_free_ : to_host_free_;
  const Link& link = machine_.host_link;
  lane_free =
      std::max(clock_.now(), lane_free) + link.latency_seconds + bytes * link.seconds_per_byte;
  auto copy = std::make_unique<LateCopy>(clock_, to, from, lane_free);
  if (queue == Queue::Compute) {
    copy->wait();
    return Work();
  }
  return Work(std::move(copy));
}

LaunchOptions on_machine(const Machine& machine, int ranks, const EmulatedOptions& options) {
  LaunchOptions launch;
  launch.ranks = ranks;
  launch.backend = LaunchOptions::Backend::Threads;
  launch.network = machine.network(ranks);
  launch.timeout_seconds = kTimeoutSeconds;
  if (!options.meta) launch.internals.stack_bytes = kStackBytes;
  launch.make_device = [&machine, options, ranks](int /*rank*/, Clock& clock) {
    EmulatedOptions of_rank = options;
    of_rank.node_ranks = std::min(ranks, machine.ranks_per_node);
    return std::make_unique<EmulatedDevice>(clock, machine, of_rank);
  };
  return launch;
}

}  // namespace aisc
