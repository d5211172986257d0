// Memory and copies. Each range that a copy touches is looked up when the copy is asked for, and
// again when it is performed: freed, foreign and too short memory is found.
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "emulated_gpu/runtime.h"

namespace aisc::emulated_gpu {
namespace {

// Fresh memory is full of ones in all bits, NaN, up to this size; beyond it, what malloc gives.
constexpr std::size_t kFilledBytes = std::size_t{64} << 20;
constexpr std::size_t kAlignment = 256;

void* allocate(std::size_t bytes, cudaMemoryType type) {
  void* memory = nullptr;
  if (posix_memalign(&memory, kAlignment, bytes) != 0) return nullptr;
  std::memset(memory, 0xff, std::min(bytes, kFilledBytes));
  runtime().add({static_cast<std::byte*>(memory), bytes, type, current_device()});
  return memory;
}

enum class Where { Pageable, Pinned, Device };

struct Range {
  Where where = Where::Pageable;
  int device = 0;
  std::string error;  // empty: none
};

Range look_up(const void* address, std::size_t bytes) {
  const auto found = runtime().find(address);
  if (!found) return {};
  Range range{found->type == cudaMemoryTypeDevice ? Where::Device : Where::Pinned, found->device,
              ""};
  const auto offset =
      static_cast<std::size_t>(static_cast<const std::byte*>(address) - found->begin);
  if (bytes > found->bytes - offset)
    range.error =
        fmt::format("{} bytes at byte {} of memory of {} bytes", bytes, offset, found->bytes);
  return range;
}

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
  cudaMemcpyKind kind;
  bool between_peers = false;  // cudaMemcpyPeerAsync needs no leave
};

// What is wrong with the copy, by a stream of `device`; empty: nothing.
std::string find_error(const Copy& copy, int device) {
  const Range to = look_up(copy.to, copy.bytes);
  const Range from = look_up(copy.from, copy.bytes);
  if (!to.error.empty()) return "destination: " + to.error;
  if (!from.error.empty()) return "source: " + from.error;
  const bool to_device =
      copy.kind == cudaMemcpyHostToDevice || copy.kind == cudaMemcpyDeviceToDevice;
  const bool from_device =
      copy.kind == cudaMemcpyDeviceToHost || copy.kind == cudaMemcpyDeviceToDevice;
  if (copy.kind != cudaMemcpyDefault) {
    if (to_device != (to.where == Where::Device))
      return to_device ? "the destination is not memory of a device"
                       : "the destination is memory of a device";
    if (from_device != (from.where == Where::Device))
      return from_device ? "the source is not memory of a device"
                         : "the source is memory of a device";
  }
  if (copy.between_peers) return {};
  for (const Range& range : {to, from})
    if (range.where == Where::Device && range.device != device &&
        (device_of(device).peers >> range.device & 1) == 0)
      return fmt::format("memory of device {}, to which device {} has no peer access", range.device,
                         device);
  return {};
}

// Pageable memory of the host is read before the call returns, and is written when it returns;
// pinned memory is read and written when the stream comes to it.
cudaError_t copy_async(const char* call, const Copy& copy, CUstream_st& stream) {
  if (const auto error = device_error(stream.device); error != cudaSuccess) return finish(error);
  if (copy.bytes == 0) return cudaSuccess;
  if (const std::string error = find_error(copy, stream.device); !error.empty())
    return complain(cudaErrorInvalidValue, fmt::format("{}: {}", call, error));
  const Where from = look_up(copy.from, copy.bytes).where;
  const Where to = look_up(copy.to, copy.bytes).where;
  std::shared_ptr<std::byte[]> staged;
  if (from == Where::Pageable && to != Where::Pageable) {
    staged = std::make_unique_for_overwrite<std::byte[]>(copy.bytes);
    std::memcpy(staged.get(), copy.from, copy.bytes);
  }
  const int device = stream.device;
  const auto number = stream.enqueue({[call, copy, staged, device, from, to] {
    Copy now = copy;
    // Pageable memory is not in the registry; what was, still has to be.
    const bool gone = (from != Where::Pageable && !runtime().find(copy.from)) ||
                      (to != Where::Pageable && !runtime().find(copy.to));
    if (gone || !find_error(now, device).empty())
      return complain(cudaErrorIllegalAddress,
                      fmt::format("{}: memory was freed before it was copied", call));
    std::memmove(copy.to, staged ? staged.get() : copy.from, copy.bytes);
    return cudaSuccess;
  }});
  if (to == Where::Pageable) stream.wait(number);
  return finish(device_error(device));
}

cudaError_t free_memory(const char* call, void* memory, cudaMemoryType type) {
  if (memory == nullptr) return cudaSuccess;
  const auto found = runtime().find(memory);
  if (!found || found->begin != memory || found->type != type)
    return complain(cudaErrorInvalidValue,
                    fmt::format("{}: {} is not what was allocated", call, memory));
  // As the real one does: nothing that was asked for earlier loses its memory.
  device_of(found->device).wait_for_all();
  runtime().remove(memory);
  if (type == cudaMemoryTypeDevice) device_of(found->device).used_bytes -= found->bytes;
  std::free(memory);
  return finish(device_error(found->device));
}

}  // namespace
}  // namespace aisc::emulated_gpu

using namespace aisc::emulated_gpu;

extern "C" {

cudaError_t cudaMalloc(void** devPtr, std::size_t size) {
  if (devPtr == nullptr) return finish(cudaErrorInvalidValue);
  *devPtr = nullptr;
  if (const auto error = device_error(current_device()); error != cudaSuccess) return finish(error);
  if (size == 0) return cudaSuccess;
  auto& used = device_of(current_device()).used_bytes;
  if (size > runtime().settings.memory_bytes ||
      used.fetch_add(size) > runtime().settings.memory_bytes - size) {
    if (size <= runtime().settings.memory_bytes) used -= size;
    return finish(cudaErrorMemoryAllocation);
  }
  *devPtr = allocate(size, cudaMemoryTypeDevice);
  if (*devPtr != nullptr) return cudaSuccess;
  used -= size;
  return finish(cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void* devPtr) { return free_memory("cudaFree", devPtr, cudaMemoryTypeDevice); }

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = runtime().settings.memory_bytes;
  *free = *total - device_of(current_device()).used_bytes;
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** pHost, std::size_t size, unsigned flags) {
  if (pHost == nullptr || flags > 7) return finish(cudaErrorInvalidValue);
  *pHost = size == 0 ? nullptr : allocate(size, cudaMemoryTypeHost);
  return *pHost != nullptr || size == 0 ? cudaSuccess : finish(cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void* ptr) { return free_memory("cudaFreeHost", ptr, cudaMemoryTypeHost); }

cudaError_t cudaHostGetDevicePointer(void** pDevice, void* pHost, unsigned flags) {
  const auto found = runtime().find(pHost);
  if (flags != 0 || !found || found->type != cudaMemoryTypeHost)
    return finish(cudaErrorInvalidValue);
  *pDevice = pHost;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, std::size_t count, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return copy_async("cudaMemcpyAsync", {dst, src, count, kind}, stream_of(stream));
}

cudaError_t cudaMemcpyPeerAsync(void* dst, int dstDevice, const void* src, int srcDevice,
                                std::size_t count, cudaStream_t stream) {
  const auto to = runtime().find(dst);
  const auto from = runtime().find(src);
  if (count > 0 && (!to || !from || to->device != dstDevice || from->device != srcDevice))
    return complain(cudaErrorInvalidValue,
                    fmt::format("cudaMemcpyPeerAsync: memory is not where it is said to be, on "
                                "devices {} and {}",
                                dstDevice, srcDevice));
  return copy_async("cudaMemcpyPeerAsync", {dst, src, count, cudaMemcpyDeviceToDevice, true},
                    stream_of(stream));
}

// As the real one, which does not wait for a copy within the device. Ordinary streams and the
// default stream wait for each other; those made with cudaStreamNonBlocking do not.
cudaError_t cudaMemcpy(void* dst, const void* src, std::size_t count, cudaMemcpyKind kind) {
  for (const auto& other : device_of(current_device()).streams())
    if (other->flags == cudaStreamDefault) other->wait_for_all();
  CUstream_st& stream = stream_of(nullptr);
  const auto error = copy_async("cudaMemcpy", {dst, src, count, kind}, stream);
  const bool within =
      look_up(dst, count).where == Where::Device && look_up(src, count).where == Where::Device;
  if (error != cudaSuccess || within) return error;
  stream.wait_for_all();
  return finish(device_error(stream.device));
}

cudaError_t cudaMemsetAsync(void* devPtr, int value, std::size_t count, cudaStream_t stream) {
  CUstream_st& it = stream_of(stream);
  if (const auto error = device_error(it.device); error != cudaSuccess) return finish(error);
  if (count == 0) return cudaSuccess;
  const Range range = look_up(devPtr, count);
  if (range.where == Where::Pageable || !range.error.empty())
    return complain(cudaErrorInvalidValue,
                    fmt::format("cudaMemsetAsync: {}",
                                range.error.empty() ? "not memory of a device" : range.error));
  it.enqueue({[devPtr, value, count] {
    if (!runtime().find(devPtr))
      return complain(cudaErrorIllegalAddress, "cudaMemsetAsync: memory was freed before");
    std::memset(devPtr, value, count);
    return cudaSuccess;
  }});
  return cudaSuccess;
}

}  // extern "C"
