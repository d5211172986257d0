// The pass over a trace, and the device that takes one. Device tells those who derive from it when
// the system is asked for memory or given it back; its cache stands in between. So the recording
// device empties the cache at every event: what was released since the last one then comes by.
#include "02_cpu_offload/more/liveness.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "common/core/error.h"
#include "common/core/tensor.h"

namespace aisc {
namespace {

constexpr std::size_t kBlockAligned = 64;
constexpr std::uintptr_t kFirstMadeUp = std::uintptr_t{1} << 48;  // where no program's memory is
constexpr std::size_t kUnused = static_cast<std::size_t>(-1);

bool has_memory(const ConstView& view) { return view.device().kind() != DeviceKind::Meta; }

}  // namespace

std::vector<TensorUse> tensor_uses(const StepTrace& trace) {
  std::vector<TensorUse> uses(trace.tensor_bytes.size(), {kUnused, kUnused});
  for (std::size_t i = 0; i < trace.operations.size(); ++i) {
    const StepTrace::Operation& operation = trace.operations[i];
    const auto use_of = [&](std::size_t tensor) -> TensorUse& {
      if (tensor < uses.size()) return uses[tensor];
      fail(fmt::format("trace: operation {} ({}) uses tensor {} of {}", i, operation.name, tensor,
                       uses.size()));
    };
    for (const std::size_t tensor : operation.reads) {
      TensorUse& use = use_of(tensor);
      if (use.first == kUnused)
        fail(fmt::format("trace: operation {} ({}) reads tensor {}, which none before it writes", i,
                         operation.name, tensor));
      use.last = i;
    }
    for (const std::size_t tensor : operation.writes) {
      TensorUse& use = use_of(tensor);
      if (use.first == kUnused) use.first = i;
      use.last = i;
    }
  }
  for (std::size_t tensor = 0; tensor < uses.size(); ++tensor)
    if (uses[tensor].first == kUnused)
      fail(fmt::format("trace: no operation writes tensor {}", tensor));
  for (const std::size_t tensor : trace.results) {
    if (tensor >= uses.size())
      fail(fmt::format("trace: tensor {} of {} is a result", tensor, uses.size()));
    uses[tensor].last = trace.operations.size() - 1;
  }
  return uses;
}

std::vector<std::int64_t> live_bytes(const StepTrace& trace, Freeing freeing) {
  const std::size_t count = trace.operations.size();
  std::vector<std::int64_t> change(count + 1);  // from one operation to the next
  const std::vector<TensorUse> uses = tensor_uses(trace);
  for (std::size_t tensor = 0; tensor < uses.size(); ++tensor) {
    const std::size_t end = freeing == Freeing::AtEnd ? count : uses[tensor].last + 1;
    change[uses[tensor].first] += trace.tensor_bytes[tensor];
    change[end] -= trace.tensor_bytes[tensor];
  }
  std::vector<std::int64_t> live(count);
  std::int64_t now = trace.resident_bytes;
  for (std::size_t i = 0; i < count; ++i) live[i] = now += change[i];
  return live;
}

std::int64_t step_peak_bytes(const StepTrace& trace, Freeing freeing) {
  std::int64_t peak = trace.resident_bytes;
  for (const std::int64_t bytes : live_bytes(trace, freeing)) peak = std::max(peak, bytes);
  return peak;
}

RecordingDevice::RecordingDevice(DeviceKind kind)
    : Device(0), kind_(kind), next_address_(kFirstMadeUp) {
  if (kind == DeviceKind::Cuda) fail("RecordingDevice: a GPU, expected the CPU or meta");
}

RecordingDevice::~RecordingDevice() { trim(); }

void RecordingDevice::begin_step() {
  trim();
  recorded_.clear();
  uses_.clear();
  trace_ = {.resident_bytes = ledger().total.live_bytes};
  reset_peaks();
  listen([this](const OpCost& cost) { begin_operation(cost.operation); });
  records_ = true;
}

StepTrace RecordingDevice::end_step() {
  if (!records_) fail("RecordingDevice: end_step() without begin_step()");
  trim();
  records_ = false;
  listen(nullptr);
  const std::size_t count = trace_.operations.size();
  if (count == 0 && !uses_.empty()) fail("RecordingDevice: a step of tensors without operations");
  std::int64_t before = ledger().total.live_bytes;  // of tensors that were there before the step
  for (const auto& [memory, block] : recorded_) {
    before -= static_cast<std::int64_t>(block.bytes);
    end_of(block);
    trace_.results.push_back(block.tensor);
  }
  if (before != trace_.resident_bytes)
    fail(fmt::format("RecordingDevice: of {} bytes from before the step {} are left, expected all",
                     trace_.resident_bytes, before));
  std::sort(trace_.results.begin(), trace_.results.end());
  for (std::size_t tensor = 0; tensor < uses_.size(); ++tensor) {
    const TensorUse& use = uses_[tensor];
    trace_.operations.at(use.first).writes.push_back(tensor);
    if (use.last > use.first) trace_.operations.at(use.last).reads.push_back(tensor);
  }
  return std::exchange(trace_, {});
}

// Called before the operation runs.
void RecordingDevice::begin_operation(const char* its_name) {
  trim();
  for (const auto& [memory, block] : recorded_)
    if (block.tensor == spoilt_.first && trace_.operations.size() == spoilt_.last && is_host())
      std::memset(memory, 0xff, block.bytes);
  trace_.operations.push_back({its_name});
}

// The block's memory is given back, behind the last operation that has begun. Made behind that one,
// it is its workspace.
void RecordingDevice::end_of(const Block& block) {
  const std::size_t begun = trace_.operations.size(), last = begun == 0 ? 0 : begun - 1;
  uses_[block.tensor] = {std::min(block.made, last), last};
}

void* RecordingDevice::do_allocate(std::size_t bytes) {
  const std::size_t rounded = (bytes + kBlockAligned - 1) / kBlockAligned * kBlockAligned;
  if (is_host()) return std::aligned_alloc(kBlockAligned, rounded);
  return reinterpret_cast<void*>(std::exchange(next_address_, next_address_ + rounded));  // NOLINT
}

void RecordingDevice::do_free(void* block) noexcept {
  if (const auto found = recorded_.find(block); records_ && found != recorded_.end()) {
    end_of(found->second);
    recorded_.erase(found);
  }
  if (is_host()) std::free(block);
}

// Called for each block that is taken, from the system or from the cache.
void RecordingDevice::do_poison(void* block, std::size_t bytes) {
  if (!records_) return;
  trim();
  if (const auto found = recorded_.find(block); found != recorded_.end()) {
    end_of(found->second);  // released since the last event, and taken again
    recorded_.erase(found);
  }
  recorded_[block] = {uses_.size(), bytes, trace_.operations.size()};
  uses_.push_back({kNone, kNone});
  trace_.tensor_bytes.push_back(static_cast<std::int64_t>(bytes));
}

Work RecordingDevice::do_copy(View to, ConstView from, Queue /*queue*/) {
  if (has_memory(to) && has_memory(from)) std::memmove(to.raw(), from.raw(), to.bytes());
  if (has_memory(to) && !has_memory(from)) std::memset(to.raw(), 0, to.bytes());
  return Work();
}

void RecordingDevice::do_zero(void* block, std::size_t bytes) {
  if (is_host() && bytes > 0) std::memset(block, 0, bytes);
}

}  // namespace aisc
