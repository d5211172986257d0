// Which tensors of a step are needed at once: the last use of each, and what freeing behind it is
// worth. A framework that allocates for the whole step keeps every tensor to its end; vDNN (Rhu et
// al., arXiv 1602.08124) frees what no layer reads any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/core/device.h"

namespace aisc {

// What one step does, in its order. Tensors and operations are named by their numbers, from 0.
struct StepTrace {
  struct Operation {
    std::string name;
    std::vector<std::size_t> reads{}, writes{};  // tensors
  };
  std::int64_t resident_bytes = 0;  // of what is there before the step and stays: weights
  std::vector<std::int64_t> tensor_bytes{};
  std::vector<Operation> operations{};
  std::vector<std::size_t> results{};  // tensors that are needed behind the step: never freed
};

// The first and the last operation that a tensor is read or written by. Of results the last is the
// last of the step.
struct TensorUse {
  std::size_t first, last;
};

// One for each tensor. Throws Error, naming the operation and the tensor, for a tensor that there
// is not, for one that is read before it was written, and for one that nobody writes.
std::vector<TensorUse> tensor_uses(const StepTrace& trace);

// When memory is given back.
enum class Freeing { AtEnd, AtLastUse };

// The bytes that are there during each operation, what is resident included: a tensor's memory is
// taken before its first use, and given back behind the last operation of the step or behind its
// own last use. Throws Error as tensor_uses().
std::vector<std::int64_t> live_bytes(const StepTrace& trace, Freeing freeing);
// The largest of them; what is resident where there are no operations.
std::int64_t step_peak_bytes(const StepTrace& trace, Freeing freeing);

// The host's memory, or none (meta), that notes what a step does with it. For one thread, as of a
// rank: not for tensors that several threads allocate at once.
//
// It sees when memory is taken and given back, and which operations run in between. It does not see
// what they read. Its trace has a tensor written by the operation before which memory was taken,
// and read by the operation behind which that was given back. Memory that is given back before the
// next operation begins is what an operation needed for itself, its workspace.
class RecordingDevice final : public Device {
 public:
  // Throws Error for DeviceKind::Cuda.
  explicit RecordingDevice(DeviceKind kind = DeviceKind::Cpu);
  ~RecordingDevice() override;

  const char* name() const override { return "recording"; }
  DeviceKind kind() const override { return kind_; }
  bool is_host() const override { return kind_ == DeviceKind::Cpu; }

  // A step begins: what is live now is resident, and the peaks of the ledger are what is live. It
  // listens to the device's operations, so that nobody else does, until the step ends.
  void begin_step();
  // What was not given back by now is a result. Throws Error without begin_step(), if tensors were
  // made and no operation ran, and if what was resident was given back.
  StepTrace end_step();

  // In the steps from now on this tensor is filled with 0xFF, NaN, before this operation runs, if
  // it is there. Results that stay as they were show that nobody reads it from there on.
  void spoil(std::size_t tensor, std::size_t operation) { spoilt_ = {tensor, operation}; }

 private:
  struct Block {
    std::size_t tensor, bytes, made;  // made: operations that had begun
  };
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  void* do_allocate(std::size_t bytes) override;
  void do_free(void* block) noexcept override;
  void do_poison(void* block, std::size_t bytes) override;
  Work do_copy(View to, ConstView from, Queue queue) override;
  void do_zero(void* block, std::size_t bytes) override;

  void begin_operation(const char* its_name);
  void end_of(const Block& block);

  const DeviceKind kind_;
  std::uintptr_t next_address_;  // of memory that is none
  bool records_ = false;
  StepTrace trace_;
  std::vector<TensorUse> uses_;                // by tensor
  std::unordered_map<void*, Block> recorded_;  // of the step's tensors, those that are live
  TensorUse spoilt_{kNone, kNone};
};

}  // namespace aisc
