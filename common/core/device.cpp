#include "common/core/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <string_view>
#include <system_error>
#include <utility>

#include "common/core/error.h"
#include "common/core/make_cuda_device.h"
#include "common/core/tensor.h"

namespace aisc {
namespace {

constexpr std::array<const char*, kPurposeCount> kPurposeNames{
    "parameters", "gradients", "optimizer", "activations", "workspace", "communication"};

// Sizes are rounded up to one of eight steps between powers of two, so that a block serves all
// requests at most an eighth smaller: a slightly different size still hits the cache. Of large
// blocks an eighth would be much memory: 32 steps.
std::size_t size_class(std::size_t bytes) {
  if (bytes <= 64) return 64;
  const std::size_t steps = bytes > (std::size_t{16} << 20) ? 32 : 8;
  const std::size_t step = std::max<std::size_t>(64, std::bit_floor(bytes - 1) / steps);
  return (bytes + step - 1) / step * step;
}

void book(Usage& usage, std::int64_t bytes) {
  usage.live_bytes += bytes;
  usage.peak_bytes = std::max(usage.peak_bytes, usage.live_bytes);
}

}  // namespace

const char* name_of(Purpose purpose) { return kPurposeNames[static_cast<std::size_t>(purpose)]; }

std::string Ledger::to_string() const {
  std::string table = fmt::format("{:<14}{:>16}{:>16}\n", "bytes", "live", "peak");
  const auto row = [&](const char* name, const Usage& u) {
    table += fmt::format("{:<14}{:>16}{:>16}\n", name, u.live_bytes, u.peak_bytes);
  };
  for (std::size_t p = 0; p < purposes.size(); ++p) row(kPurposeNames[p], purposes[p]);
  row("total", total);
  return table;
}

std::string Ledger::leaked_since(const Ledger& before) const {
  std::string leaks;
  for (std::size_t p = 0; p < purposes.size(); ++p) {
    const std::int64_t more = purposes[p].live_bytes - before.purposes[p].live_bytes;
    if (more > 0)
      leaks += fmt::format("{}{}: {} bytes", leaks.empty() ? "" : ", ", kPurposeNames[p], more);
  }
  return leaks;
}

void* Device::allocate(std::size_t bytes, Purpose purpose) {
  const std::size_t rounded = size_class(bytes);
  void* block = nullptr;
  if (is_host_workspace(purpose)) {
    block = do_allocate(rounded);
    if (!block) fail(fmt::format("{}: the system has no {} bytes for workspace", name(), rounded));
  } else {
    const std::lock_guard lock(mutex_);
    const auto asked = static_cast<std::int64_t>(bytes);
    if (capacity_bytes_ > 0 && ledger_.total.live_bytes + asked > capacity_bytes_)
      fail(fmt::format("{}: out of memory: {} bytes asked for {}, {} of {} in use\n{}", name(),
                       bytes, name_of(purpose), ledger_.total.live_bytes, capacity_bytes_,
                       ledger_.to_string()));
    ++ledger_.allocations;
    const auto cached = cache_.find(rounded);
    if (cached != cache_.end() && !cached->second.empty()) {
      block = cached->second.back();
      cached->second.pop_back();
      ledger_.cached_bytes -= static_cast<std::int64_t>(rounded);
    } else {
      ++ledger_.cache_misses;
      block = do_allocate(rounded);
      if (!block) {  // what the cache keeps may be what is missing
        trim_locked();
        block = do_allocate(rounded);
      }
      if (!block)
        fail(fmt::format("{}: the system has no {} bytes more for {}; {} bytes are in use", name(),
                         rounded, name_of(purpose), ledger_.total.live_bytes));
    }
    book(ledger_.purposes[static_cast<std::size_t>(purpose)], asked);
    book(ledger_.total, asked);
  }
  do_poison(block, bytes);
  return block;
}

void Device::release(void* block, std::size_t bytes, Purpose purpose) noexcept {
  if (is_host_workspace(purpose)) return do_free(block);
  const std::lock_guard lock(mutex_);
  const std::size_t rounded = size_class(bytes);
  ledger_.purposes[static_cast<std::size_t>(purpose)].live_bytes -=
      static_cast<std::int64_t>(bytes);
  ledger_.total.live_bytes -= static_cast<std::int64_t>(bytes);
  try {
    cache_[rounded].push_back(block);
    ledger_.cached_bytes += static_cast<std::int64_t>(rounded);
  } catch (...) {  // no memory for the list itself: give the block back at once
    do_free(block);
  }
}

Work Device::copy_async(View to, ConstView from, Queue queue) {
  if (to.count() != from.count() || to.dtype() != from.dtype())
    fail(fmt::format("copy: to {} x {} from {} x {}", to.count(), name_of(to.dtype()), from.count(),
                     name_of(from.dtype())));
  if (to.count() == 0) return Work();
  if (wants_costs() && &to.device() == &from.device())
    charge(
        {.operation = "copy", .bytes = 2 * static_cast<double>(to.bytes()), .dtype = to.dtype()});
  if (queue != Queue::Compute && &to.device() != &from.device()) {
    const std::lock_guard lock(mutex_);
    if (&to.device() == this) copied_.to_device += static_cast<std::int64_t>(to.bytes());
    if (&from.device() == this) copied_.from_device += static_cast<std::int64_t>(to.bytes());
  }
  // Of the host and a GPU it is the GPU that copies, or what is emulated.
  Device* copies = this;
  for (Device* side : {&to.device(), &from.device()})
    if (copies->kind() == DeviceKind::Cpu && !copies->takes_time_) copies = side;
  return copies->do_copy(to, from, queue);
}

void Device::copy(View to, ConstView from) { copy_async(to, from).wait(); }

void Device::zero(View out) {
  if (wants_costs())
    charge({.operation = "zero", .bytes = static_cast<double>(out.bytes()), .dtype = out.dtype()});
  do_zero(out.raw(), out.bytes());
}

void Device::charge(const OpCost& cost) {
  do_charge(cost);
  if (listener_) listener_(cost);
}

Copied Device::copied() const {
  const std::lock_guard lock(mutex_);
  return copied_;
}

Ledger Device::ledger() const {
  const std::lock_guard lock(mutex_);
  return ledger_;
}

void Device::reset_peaks() {
  const std::lock_guard lock(mutex_);
  for (Usage& u : ledger_.purposes) u.peak_bytes = u.live_bytes;
  ledger_.total.peak_bytes = ledger_.total.live_bytes;
}

void Device::trim() noexcept {
  const std::lock_guard lock(mutex_);
  trim_locked();
}

void Device::trim_locked() noexcept {
  for (auto& [bytes, blocks] : cache_) {
    for (void* block : blocks) do_free(block);
    blocks.clear();
  }
  ledger_.cached_bytes = 0;
}

DeviceOptions parse_device(const std::string& name) {
  if (name == "cpu") return {};
  if (name == "cuda") return {.kind = DeviceKind::Cuda};
  constexpr std::string_view kPrefix = "cuda:";
  DeviceOptions options{.kind = DeviceKind::Cuda};
  const char* const end = name.data() + name.size();
  if (name.starts_with(kPrefix)) {
    const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, options.index);
    if (error == std::errc() && rest == end && options.index >= 0) return options;
  }
  fail(fmt::format("device \"{}\": expected cpu, cuda, or cuda: and a number, as in cuda:1", name));
}

std::unique_ptr<Device> make_device(const DeviceOptions& options, int node_rank) {
  if (options.kind == DeviceKind::Cpu) return std::make_unique<CpuDevice>(options);
  if (options.kind == DeviceKind::Meta)
    fail("a device without numbers is a machine's: common/model/emulated_device.h");
  return make_cuda_device(options, node_rank);
}

}  // namespace aisc
