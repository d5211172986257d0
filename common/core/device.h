// Where tensors live: memory with a cache in front of it, an optional limit, and a ledger that
// knows how many bytes each purpose holds now and held at most.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <typeindex>
#include <vector>

#include "common/core/dtype.h"
#include "common/core/work.h"

namespace aisc {

class View;
class ConstView;

// What memory is for. The columns of every table about memory in this course.
enum class Purpose { Parameters, Gradients, Optimizer, Activations, Workspace, Communication };
inline constexpr int kPurposeCount = 6;
const char* name_of(Purpose purpose);  // "parameters", "gradients", ...

// Which queue a copy runs on. On the CPU all copies happen at once, in the calling thread. On a GPU
// each is a stream: Compute is in order with the kernels; a copy on another one begins when what
// was asked of Compute before is over, and runs beside what comes after.
enum class Queue { Compute, ToHost, ToDevice };

// Whose kernels compute on the memory. Meta: there is none, and nothing is computed.
enum class DeviceKind { Cpu, Cuda, Meta };

struct DeviceOptions {
  DeviceKind kind = DeviceKind::Cpu;
  int index = -1;                   // of the GPU; -1: ranks of a node take turns
  std::int64_t capacity_bytes = 0;  // 0: no limit
  bool poison = false;  // fill new blocks with 0xFF, a NaN in every floating type: finds reads of
                        // memory that was never written
};

struct Usage {
  std::int64_t live_bytes = 0;
  std::int64_t peak_bytes = 0;
};

// Bytes that were copied between a device and others.
struct Copied {
  std::int64_t to_device = 0, from_device = 0;
};

// A snapshot of a device's books. Bytes are those asked for, without rounding.
struct Ledger {
  std::array<Usage, kPurposeCount> purposes{};
  Usage total;                    // the peak of the sum, not the sum of the peaks
  std::int64_t cached_bytes = 0;  // freed, kept for the next allocation of the same size
  std::int64_t allocations = 0;   // since the device was made
  std::int64_t cache_misses = 0;  // allocations that had to ask the system

  const Usage& operator[](Purpose p) const { return purposes[static_cast<std::size_t>(p)]; }
  std::string to_string() const;  // a table: purpose, live, peak
  // What is live now and was not at `before`, e.g. "activations: 4096 bytes"; empty: no leak.
  std::string leaked_since(const Ledger& before) const;
};

// What an operation asks of its device.
struct OpCost {
  const char* operation = "";  // "matmul": its name in ops.h, or "copy" or "zero"
  double flops = 0;            // of the formula, each arithmetic operation and function 1
  double bytes = 0;            // read and written: each tensor once, one that is added to twice
  DType dtype = DType::F32;    // that it computes in
  bool product = false;        // of matrices, at the rate of products
};

class Device {
 public:
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  virtual const char* name() const = 0;  // "cpu", "cuda:0"
  virtual DeviceKind kind() const { return DeviceKind::Cpu; }
  // True if the memory is the host's, which this program reads and writes by itself.
  virtual bool is_host() const { return false; }

  // Returns at least `bytes` bytes aligned to 64, uninitialised. Takes a cached block of the same
  // size class if there is one. Throws Error beyond the capacity, naming purpose and figures.
  void* allocate(std::size_t bytes, Purpose purpose);
  void release(void* block, std::size_t bytes, Purpose purpose) noexcept;

  // to and from have the same count and dtype, else Error. Either may be another device's. Both
  // must live until wait() has returned; memory of the host has then been read or written.
  Work copy_async(View to, ConstView from, Queue queue = Queue::Compute);
  void copy(View to, ConstView from);  // copy_async, waited for
  // Of all copies beside Queue::Compute that were asked of this device so far.
  Copied copied() const;
  void zero(View out);
  // Returns when all that was asked of this device is over, and throws what went wrong meanwhile:
  // operations of a GPU return before they are done. Nothing on the CPU.
  virtual void synchronize() {}

  // Every operation says what it costs before it runs, copies on the device and zero() as well;
  // copies from and to another device do not. Told is who listens (one at a time; null: nobody), by
  // the thread that computes; on an emulated device time passes.
  void listen(std::function<void(const OpCost&)> listener) { listener_ = std::move(listener); }
  bool wants_costs() const { return takes_time_ || listener_; }  // else a cost is not even counted
  void charge(const OpCost& cost);

  Ledger ledger() const;
  void reset_peaks();    // peaks := live; for measuring one phase
  void trim() noexcept;  // gives the cached blocks back to the system

  // The one object of type T that belongs to this device, made by T() on first use: library handles
  // and primitive caches, which must be neither global nor shared between ranks.
  template <class T>
  T& extension() {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<void>& slot = extensions_[std::type_index(typeid(T))];
    if (!slot) slot = std::make_shared<T>();
    return *static_cast<T*>(slot.get());
  }

 protected:
  explicit Device(std::int64_t capacity_bytes, bool takes_time = false)
      : capacity_bytes_(capacity_bytes), takes_time_(takes_time) {}
  // For destructors of devices whose extensions use them: ends these first.
  void end_extensions() noexcept { extensions_.clear(); }

 private:
  virtual void* do_allocate(std::size_t bytes) = 0;  // nullptr when there is no more
  virtual void do_free(void* block) noexcept = 0;
  virtual void do_poison(void* block, std::size_t bytes) = 0;
  virtual Work do_copy(View to, ConstView from, Queue queue) = 0;
  virtual void do_zero(void* block, std::size_t bytes) = 0;
  virtual void do_charge(const OpCost& /*cost*/) {}

  void trim_locked() noexcept;
  // What the host's kernels need that compute for an emulated device is not in its books.
  bool is_host_workspace(Purpose purpose) const {
    return takes_time_ && purpose == Purpose::Workspace;
  }

  const std::int64_t capacity_bytes_;  // 0: no limit
  const bool takes_time_;              // it is emulated
  std::function<void(const OpCost&)> listener_;
  mutable std::mutex mutex_;
  Ledger ledger_;
  Copied copied_;
  std::map<std::size_t, std::vector<void*>> cache_;  // by size class
  std::map<std::type_index, std::shared_ptr<void>> extensions_;
};

// The host's memory. Blocks of 2 MiB and more ask for transparent huge pages: a 64 MiB buffer then
// costs 32 address translations instead of 16,384.
class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const DeviceOptions& options = {});
  ~CpuDevice() override;

  const char* name() const override { return "cpu"; }
  bool is_host() const override { return true; }

 private:
  void* do_allocate(std::size_t bytes) override;
  void do_free(void* block) noexcept override;
  void do_poison(void* block, std::size_t bytes) override;
  Work do_copy(View to, ConstView from, Queue queue) override;
  void do_zero(void* block, std::size_t bytes) override;

  const bool poison_;
};

// "cpu", "cuda" (ranks take turns) or "cuda:1". Throws Error for anything else.
DeviceOptions parse_device(const std::string& name);

// The device of a rank that is number `node_rank` of those on its node. Throws Error naming what is
// missing: CUDA in this build, a driver, a GPU of that index.
std::unique_ptr<Device> make_device(const DeviceOptions& options, int node_rank = 0);

// GPUs that this program sees: 0 without CUDA.
int gpu_count();

// Host memory that a GPU copies from and to by itself, at full speed and beside its kernels; plain
// host memory where this program has no CUDA.
std::unique_ptr<Device> make_pinned_memory();

}  // namespace aisc
