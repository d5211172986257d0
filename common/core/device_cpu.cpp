// The host's memory as a Device.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "common/core/device.h"
#include "common/core/error.h"
#include "common/core/tensor.h"

namespace aisc {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

CpuDevice::CpuDevice(const DeviceOptions& options)
    : Device(options.capacity_bytes), poison_(options.poison) {}

CpuDevice::~CpuDevice() { trim(); }

void* CpuDevice::do_allocate(std::size_t bytes) {
  if (bytes < kHugePage) return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  const std::size_t pages = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* block = std::aligned_alloc(kHugePage, pages);
  if (block) madvise(block, pages, MADV_HUGEPAGE);  // a hint: where it is refused, all still works
  return block;
}

void CpuDevice::do_free(void* block) noexcept { std::free(block); }

void CpuDevice::do_poison(void* block, std::size_t bytes) {
  if (poison_) std::memset(block, 0xff, bytes);
}

Work CpuDevice::do_copy(View to, ConstView from, Queue /*queue*/) {
  if (from.count() > 0) std::memmove(to.raw(), from.raw(), from.bytes());
  return Work();
}

void CpuDevice::do_zero(void* block, std::size_t bytes) {
  if (bytes > 0) std::memset(block, 0, bytes);
}

}  // namespace aisc
