// A device that is not there: its operations take the time that its machine would need, on a clock
// in virtual time.
#pragma once

#include "common/comm/launch.h"
#include "common/model/machine.h"

namespace aisc {

struct EmulatedOptions {
  bool meta = false;    // without numbers: no memory, nothing is computed
  bool poison = false;  // as of DeviceOptions
  int node_ranks = 1;   // of the machine's, that share a node
};

// With numbers its memory is the host's and its results are the CPU's. Without, addresses are made
// up and nobody touches them: any size fits that the machine has room for. Reading an element is an
// Error; sums and what is copied to the host are 0.
//
// Compute is one queue: each operation begins when the one before it is over. Copies to and from
// the host take two lanes of their own beside it: one begins when it was asked for and the lane is
// free; it moves its bytes when it is waited for, and until then its end holds 0xFF (NaN), so that
// a missing wait is seen. Of several wait_any() takes the earliest. On Queue::Compute a copy takes
// its lane and is waited for at once.
class EmulatedDevice final : public Device {
 public:
  // Throws Error for a wall clock. Both must outlive the device.
  EmulatedDevice(Clock& clock, const Machine& machine, const EmulatedOptions& options = {});
  ~EmulatedDevice() override;

  const char* name() const override { return name_.c_str(); }
  DeviceKind kind() const override { return options_.meta ? DeviceKind::Meta : DeviceKind::Cpu; }
  bool is_host() const override { return !options_.meta; }
  const Machine& machine() const { return machine_; }
  int node_ranks() const { return options_.node_ranks; }

 private:
  class LateCopy;

  void* do_allocate(std::size_t bytes) override;
  void do_free(void* block) noexcept override;
  void do_poison(void* block, std::size_t bytes) override;
  Work do_copy(View to, ConstView from, Queue queue) override;
  void do_zero(void* block, std::size_t bytes) override;
  void do_charge(const OpCost& cost) override;

  Clock& clock_;
  const Machine& machine_;
  const EmulatedOptions options_;
  const std::string name_;
  double to_host_free_ = 0, to_device_free_ = 0;  // when the lanes are
  std::uintptr_t next_address_;
};

// Virtual time on so many devices of a machine, one a rank: `options` with its network, its devices
// and the default plans. The machine must outlive the launch.
LaunchOptions on_machine(const Machine& machine, int ranks, const EmulatedOptions& options = {});
LaunchOptions on_machine(Machine&&, int, const EmulatedOptions& = {}) = delete;  // it must outlive

}  // namespace aisc
