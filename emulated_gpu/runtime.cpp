#include "emulated_gpu/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace aisc::emulated_gpu {
namespace {

thread_local int device_of_thread = 0;
thread_local cudaError_t error_of_thread = cudaSuccess;

long long number_from(const char* variable, long long otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr || *text == 0 ? otherwise : std::atoll(text);
}

struct NamedError {
  cudaError_t error;
  const char* name;
  const char* text;
};
constexpr NamedError kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled",
     "peer access is already enabled"},
    {cudaErrorPeerAccessNotEnabled, "cudaErrorPeerAccessNotEnabled",
     "peer access has not been enabled"},
    {cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
};

const NamedError* named(cudaError_t error) {
  for (const auto& entry : kErrors)
    if (entry.error == error) return &entry;
  return nullptr;
}

}  // namespace

Runtime& runtime() {
  static Runtime& runtime = *new Runtime;
  return runtime;
}

Runtime::Runtime() {
  settings.gpus = static_cast<int>(
      std::clamp<long long>(number_from("AISC_EMULATED_GPUS", settings.gpus), 0, 64));
  settings.memory_bytes = static_cast<std::size_t>(
      number_from("AISC_EMULATED_GPU_MEMORY", static_cast<long long>(settings.memory_bytes)));
  settings.most_shared_bytes =
      static_cast<std::size_t>(number_from("AISC_EMULATED_GPU_SHARED_KIB", 227)) * 1024;
  settings.delay_us = static_cast<int>(number_from("AISC_EMULATED_GPU_DELAY_US", 0));
  settings.nccl_shares_gpus = number_from("AISC_EMULATED_NCCL_SHARED", 0) != 0;
  const char* order = std::getenv("AISC_EMULATED_GPU_ORDER");
  const std::string name = order == nullptr ? "forward" : order;
  if (name == "backward")
    settings.order = Order::Backward;
  else if (name == "shuffled")
    settings.order = Order::Shuffled;
  else if (name != "forward")
    throw std::invalid_argument(fmt::format(
        "AISC_EMULATED_GPU_ORDER is {}; forward, backward or shuffled is expected", name));
  for (int i = 0; i < settings.gpus; ++i) devices.emplace_back();
}

void Runtime::add(const Allocation& allocation) {
  const std::lock_guard lock(mutex_);
  allocations_[reinterpret_cast<std::uintptr_t>(allocation.begin)] = allocation;
}

std::optional<Allocation> Runtime::remove(void* begin) {
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.find(reinterpret_cast<std::uintptr_t>(begin));
  if (found == allocations_.end()) return std::nullopt;
  const Allocation allocation = found->second;
  allocations_.erase(found);
  return allocation;
}

std::optional<Allocation> Runtime::find(const void* address) {
  const std::lock_guard lock(mutex_);
  const auto key = reinterpret_cast<std::uintptr_t>(address);
  auto after = allocations_.upper_bound(key);
  if (after == allocations_.begin()) return std::nullopt;
  const Allocation& allocation = std::prev(after)->second;
  if (key - std::prev(after)->first >= allocation.bytes) return std::nullopt;
  return allocation;
}

void Runtime::set_shared_limit(const void* kernel, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  shared_limits_[kernel] = bytes;
}

std::size_t Runtime::shared_limit(const void* kernel) {
  const std::lock_guard lock(mutex_);
  const auto found = shared_limits_.find(kernel);
  return std::max(kSharedBytes, found == shared_limits_.end() ? 0 : found->second);
}

int current_device() { return device_of_thread; }

cudaError_t finish(cudaError_t error) {
  if (error != cudaSuccess) error_of_thread = error;
  return error;
}

cudaError_t device_error(int device) {
  return runtime().devices[static_cast<std::size_t>(device)].error;
}

cudaError_t complain(cudaError_t error, const std::string& text) {
  std::fputs(fmt::format("emulated GPU: {}: {}\n", text, cudaGetErrorName(error)).c_str(), stderr);
  return finish(error);
}

}  // namespace aisc::emulated_gpu

using aisc::emulated_gpu::finish;
using aisc::emulated_gpu::runtime;

namespace {

bool is_device(int device) { return device >= 0 && device < runtime().settings.gpus; }

}  // namespace

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
  const auto* entry = aisc::emulated_gpu::named(error);
  return entry == nullptr ? "unrecognized error code" : entry->name;
}

const char* cudaGetErrorString(cudaError_t error) {
  const auto* entry = aisc::emulated_gpu::named(error);
  return entry == nullptr ? "unrecognized error code" : entry->text;
}

cudaError_t cudaGetLastError() {
  return std::exchange(aisc::emulated_gpu::error_of_thread, cudaSuccess);
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = runtime().settings.gpus;
  return *count > 0 ? cudaSuccess : finish(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device) {
  if (!is_device(device)) return finish(cudaErrorInvalidDevice);
  aisc::emulated_gpu::device_of_thread = device;
  return cudaSuccess;
}

// A small GPU of the kind "compute capability 9.0".
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  if (!is_device(device)) return finish(cudaErrorInvalidDevice);
  *prop = {};
  std::strcpy(prop->name, "emulated");
  prop->totalGlobalMem = runtime().settings.memory_bytes;
  prop->major = 9;
  prop->multiProcessorCount = 8;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attr, int device) {
  cudaDeviceProp p;
  if (const auto error = cudaGetDeviceProperties(&p, device); error != cudaSuccess) return error;
  *value = attr == cudaDevAttrMultiProcessorCount
               ? p.multiProcessorCount
               : static_cast<int>(runtime().settings.most_shared_bytes);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  *leastPriority = 0;
  *greatestPriority = -5;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* pciBusId, int len, int device) {
  if (!is_device(device)) return finish(cudaErrorInvalidDevice);
  std::snprintf(pciBusId, static_cast<std::size_t>(len), "0000:%02X:00.0", device + 1);
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned flags) {
  const int device = aisc::emulated_gpu::current_device();
  if (!is_device(peerDevice) || peerDevice == device) return finish(cudaErrorInvalidDevice);
  if (flags != 0) return finish(cudaErrorInvalidValue);
  const auto bit = std::uint64_t{1} << peerDevice;
  const auto before = runtime().devices[static_cast<std::size_t>(device)].peers.fetch_or(bit);
  return before & bit ? finish(cudaErrorPeerAccessAlreadyEnabled) : cudaSuccess;
}

cudaError_t cudaDeviceDisablePeerAccess(int peerDevice) {
  const int device = aisc::emulated_gpu::current_device();
  if (!is_device(peerDevice) || peerDevice == device) return finish(cudaErrorInvalidDevice);
  const auto bit = std::uint64_t{1} << peerDevice;
  const auto before = runtime().devices[static_cast<std::size_t>(device)].peers.fetch_and(~bit);
  return before & bit ? cudaSuccess : finish(cudaErrorPeerAccessNotEnabled);
}

}  // extern "C"
