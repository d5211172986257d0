#include "common/core/cuda/cuda_device.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "common/core/cuda/check.h"
#include "common/core/make_cuda_device.h"
#include "common/core/tensor.h"

namespace aisc {
namespace {

// What Device::do_allocate is to return: nothing where memory is short. Throws any other error.
void* allocated(cudaError_t status, void* block) {
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check_cuda(status, "allocating memory");
  return block;
}

// A copy on its way. What follows wait() on the device comes after it; where one side is the
// host's memory the host waits, too, since it may read or reuse that at once.
class PendingCopy final : public PendingOperation {
 public:
  PendingCopy(CudaDevice& device, CudaEvent event, bool touches_host)
      : device_(device), event_(std::move(event)), touches_host_(touches_host) {}

  void wait() override {
    check_cuda(cudaStreamWaitEvent(device_.stream(), event_.get(), 0), "copy");
    if (touches_host_) device_.wait(event_);
  }
  bool done() override { return event_.is_over(); }

 private:
  CudaDevice& device_;
  CudaEvent event_;
  const bool touches_host_;
};

}  // namespace

CudaEvent::CudaEvent() {
  check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "an event");
}

CudaEvent::CudaEvent(CudaEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}

CudaEvent& CudaEvent::operator=(CudaEvent&& other) noexcept {
  std::swap(event_, other.event_);
  return *this;
}

CudaEvent::~CudaEvent() {
  if (event_) cudaEventDestroy(event_);
}

void CudaEvent::record(cudaStream_t stream) {
  check_cuda(cudaEventRecord(event_, stream), "recording an event");
}

bool CudaEvent::is_over() const {
  const cudaError_t status = cudaEventQuery(event_);
  if (status == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  check_cuda(status, "an earlier operation");
  return true;
}

CudaDevice::CudaDevice(const DeviceOptions& options)
    : Device(options.capacity_bytes),
      index_(options.index),
      poison_(options.poison),
      name_(fmt::format("cuda:{}", options.index)) {
  check_cuda(cudaSetDevice(index_), name());
  const auto ask = [this](int* value, cudaDeviceAttr what) {
    check_cuda(cudaDeviceGetAttribute(value, what, index_), name());
  };
  ask(&multiprocessors_, cudaDevAttrMultiProcessorCount);
  ask(&most_shared_bytes_, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  void* fault = nullptr;
  check_cuda(cudaHostAlloc(&fault, sizeof(Fault), cudaHostAllocMapped), "pinned memory");
  std::memset(fault, 0, sizeof(Fault));
  fault_ = static_cast<Fault*>(fault);
  check_cuda(cudaHostGetDevicePointer(&fault, fault, 0), "pinned memory");
  fault_on_device_ = static_cast<Fault*>(fault);
  for (cudaStream_t& stream : streams_)
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
}

CudaDevice::~CudaDevice() {
  end_extensions();
  cudaSetDevice(index_);
  for (const cudaStream_t stream : streams_) {
    if (!stream) continue;
    cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
  }
  trim();
  cudaFreeHost(fault_);
}

cudaStream_t CudaDevice::stream(Queue queue) const {
  check_cuda(cudaSetDevice(index_), name());
  return streams_[static_cast<std::size_t>(queue)];
}

void CudaDevice::order(cudaStream_t later, cudaStream_t earlier) const {
  CudaEvent event;
  event.record(earlier);
  check_cuda(cudaStreamWaitEvent(later, event.get(), 0), "waiting for a stream");
}

void CudaDevice::add(Watch* watch) { watches_.push_back(watch); }

void CudaDevice::remove(Watch* watch) noexcept { std::erase(watches_, watch); }

void CudaDevice::wait(const CudaEvent& event) {
  const std::vector<Watch*> watches = watches_;  // one that looks may remove itself
  for (Watch* watch : watches) watch->look(true);
  const auto look = [this] {
    for (Watch* watch : std::vector(watches_)) watch->look(false);
  };
  const auto begin = std::chrono::steady_clock::now();
  try {
    while (!watches_.empty() && !event.is_over()) {
      look();
      if (std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(1))
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    check_cuda(cudaEventSynchronize(event.get()), "waiting for the device");
  } catch (...) {
    look();  // where a peer has failed, that is why, and what they throw
    throw;
  }
  throw_fault();
}

void CudaDevice::synchronize() {
  const cudaStream_t compute = stream();  // events belong to the GPU that is current
  CudaEvent event;
  event.record(compute);
  wait(event);
}

void CudaDevice::throw_fault() {
  if (std::atomic_ref(fault_->raised).load(std::memory_order_acquire) == 0) return;
  const Fault fault = *fault_;
  std::atomic_ref(fault_->raised).store(0, std::memory_order_relaxed);
  std::atomic_ref(fault_->claimed).store(0, std::memory_order_release);
  fail(fmt::format(fmt::runtime(fault.text), fault.place, fault.value, fault.limit));
}

void* CudaDevice::do_allocate(std::size_t bytes) {
  check_cuda(cudaSetDevice(index_), name());
  void* block = nullptr;
  const cudaError_t status = cudaMalloc(&block, bytes);
  return allocated(status, block);
}

void CudaDevice::do_free(void* block) noexcept {
  cudaSetDevice(index_);
  cudaFree(block);  // waits until nothing on the GPU can still use it
}

void CudaDevice::do_poison(void* block, std::size_t bytes) {
  if (poison_ && bytes > 0) check_cuda(cudaMemsetAsync(block, 0xff, bytes, stream()), "poison");
}

void CudaDevice::do_zero(void* block, std::size_t bytes) {
  if (bytes > 0) check_cuda(cudaMemsetAsync(block, 0, bytes, stream()), "zero");
}

// The runtime itself waits, in cudaMemcpyAsync, for what is before a copy to memory of the host
// that is not pinned, and of a long one from there. Nobody would watch over that wait: so first
// this one.
void CudaDevice::wait_where_a_copy_would(const View& to, const ConstView& from,
                                         cudaStream_t stream) {
  constexpr std::size_t kLong = 64 << 10;  // of the runtime's documentation
  const bool waits = dynamic_cast<CpuDevice*>(&to.device()) ||
                     (dynamic_cast<CpuDevice*>(&from.device()) && from.bytes() > kLong);
  if (!waits || watches_.empty()) return;
  CudaEvent before;
  before.record(stream);
  wait(before);
}

Work CudaDevice::do_copy(View to, ConstView from, Queue queue) {
  if (from.count() == 0) return Work();
  const cudaStream_t compute = stream(), copies = stream(queue);
  if (queue != Queue::Compute) order(copies, compute);
  // Of two GPUs the other's work so far comes first, and what it does next comes after.
  CudaDevice* other = nullptr;
  bool touches_host = false;
  for (Device* side : {&to.device(), &from.device()}) {
    if (side->kind() == DeviceKind::Cpu)
      touches_host = true;
    else if (side != this)
      other = &as_cuda(*side);
  }
  if (other) {
    order(copies, other->stream());
    stream();  // makes this device current again
  }
  if (touches_host) wait_where_a_copy_would(to, from, copies);
  if (other && !touches_host)
    check_cuda(cudaMemcpyPeerAsync(to.raw(), as_cuda(to.device()).index(), from.raw(),
                                   as_cuda(from.device()).index(), from.bytes(), copies),
               "copy");
  else
    check_cuda(cudaMemcpyAsync(to.raw(), from.raw(), from.bytes(), cudaMemcpyDefault, copies),
               "copy");
  CudaEvent event;
  event.record(copies);
  if (other) check_cuda(cudaStreamWaitEvent(other->stream(), event.get(), 0), "copy");
  stream();
  if (queue == Queue::Compute && !touches_host) return Work();  // in order already
  return Work(std::make_unique<PendingCopy>(*this, std::move(event), touches_host));
}

// ---- pinned memory ------------------------------------------------------------------------------

namespace {

class PinnedMemory final : public Device {
 public:
  PinnedMemory() : Device(0) {}
  ~PinnedMemory() override { trim(); }
  const char* name() const override { return "pinned"; }
  bool is_host() const override { return true; }

 private:
  void* do_allocate(std::size_t bytes) override {
    void* block = nullptr;
    const cudaError_t status = cudaHostAlloc(&block, bytes, cudaHostAllocPortable);
    return allocated(status, block);
  }
  void do_free(void* block) noexcept override { cudaFreeHost(block); }
  void do_poison(void* /*block*/, std::size_t /*bytes*/) override {}
  Work do_copy(View to, ConstView from, Queue /*queue*/) override {
    if (from.count() > 0) std::memmove(to.raw(), from.raw(), from.bytes());
    return Work();
  }
  void do_zero(void* block, std::size_t bytes) override { std::memset(block, 0, bytes); }
};

}  // namespace

std::unique_ptr<Device> make_pinned_memory() {
  if (gpu_count() == 0) return std::make_unique<CpuDevice>();
  return std::make_unique<PinnedMemory>();
}

int gpu_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // no driver: no GPU
  return 0;
}

std::unique_ptr<Device> make_cuda_device(const DeviceOptions& options, int node_rank) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    cudaGetLastError();
    fail(fmt::format("cuda: no GPU was found ({})",
                     status == cudaSuccess ? "the driver has none" : cudaGetErrorString(status)));
  }
  DeviceOptions chosen = options;
  if (options.index < 0) chosen.index = node_rank % count;
  if (chosen.index >= count)
    fail(fmt::format("cuda:{}: there are {} GPUs, expected an index in [0, {})", chosen.index,
                     count, count));
  return std::make_unique<CudaDevice>(chosen);
}

}  // namespace aisc
