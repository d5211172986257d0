// The state behind the emulated CUDA runtime: devices, what is allocated on them, and streams, each
// of which is an OS thread that performs operations in order.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "emulated_gpu/block.h"

namespace aisc::emulated_gpu {

inline constexpr std::size_t kSharedBytes = 48 * 1024;

// From the environment (README.md). A test may change what is atomic.
struct Settings {
  int gpus = 4;
  std::size_t memory_bytes = std::size_t{4} << 30;
  std::size_t most_shared_bytes = 227 * 1024;  // that a kernel may ask for
  std::atomic<Order> order = Order::Forward;
  std::atomic<int> delay_us = 0;
  std::atomic<bool> nccl_shares_gpus = false;
};

// What a stream performs. After a kernel has failed its device performs only what others wait for.
struct Operation {
  std::function<cudaError_t()> run;
  bool even_after_failure = false;
};

}  // namespace aisc::emulated_gpu

struct CUstream_st : std::enable_shared_from_this<CUstream_st> {
  CUstream_st(int device_number, unsigned stream_flags)
      : device(device_number), flags(stream_flags) {}

  // Returns the operation's number, for wait(). Never blocks.
  std::uint64_t enqueue(aisc::emulated_gpu::Operation operation);
  void wait(std::uint64_t number);
  void wait_for_all();
  bool idle();
  void close();  // the thread ends when the queue is empty

  const int device;
  const unsigned flags;

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<aisc::emulated_gpu::Operation> queue_;
  std::uint64_t enqueued_ = 0;
  std::uint64_t performed_ = 0;
  bool started_ = false;
  bool closed_ = false;
};

struct CUevent_st {
  // One call of cudaEventRecord; who waits for it does not mind a later one.
  struct Record {
    void complete();
    void wait();
    bool done();

    std::mutex mutex;
    std::condition_variable changed;
    bool is_done = false;
  };

  std::shared_ptr<Record> record();  // the newest; null: none yet
  void set_record(std::shared_ptr<Record> record);

  int device;

 private:
  std::mutex mutex_;
  std::shared_ptr<Record> record_;
};

namespace aisc::emulated_gpu {

struct Allocation {
  std::byte* begin;
  std::size_t bytes;
  cudaMemoryType type;
  int device;
};

class Device {
 public:
  std::shared_ptr<CUstream_st> default_stream(int number);
  void add(const std::shared_ptr<CUstream_st>& stream);
  void remove(const CUstream_st* stream);
  std::vector<std::shared_ptr<CUstream_st>> streams();
  void wait_for_all();

  std::atomic<cudaError_t> error = cudaSuccess;  // of a kernel: stays
  std::atomic<std::size_t> used_bytes = 0;
  std::atomic<std::uint64_t> peers = 0;  // bit i: may touch the memory of device i

 private:
  std::mutex mutex_;
  std::shared_ptr<CUstream_st> default_;
  std::vector<std::shared_ptr<CUstream_st>> streams_;
};

class Runtime {
 public:
  Runtime();

  Settings settings;
  std::deque<Device> devices;

  void add(const Allocation& allocation);
  std::optional<Allocation> remove(void* begin);
  std::optional<Allocation> find(const void* address);  // the one that holds it

  // Bytes of dynamic shared memory that a kernel has leave to use.
  void set_shared_limit(const void* kernel, std::size_t bytes);
  std::size_t shared_limit(const void* kernel);

 private:
  std::mutex mutex_;
  std::map<std::uintptr_t, Allocation> allocations_;
  std::map<const void*, std::size_t> shared_limits_;
};

// Stands for the driver: made at the first call and never destroyed, since threads of streams may
// still use it when the program ends.
Runtime& runtime();
inline Device& device_of(int number) { return runtime().devices[static_cast<std::size_t>(number)]; }

int current_device();                         // of this thread: cudaSetDevice
CUstream_st& stream_of(cudaStream_t stream);  // null: the default stream of the current device
cudaError_t finish(cudaError_t error);        // remembers an error for cudaGetLastError
cudaError_t device_error(int device);         // of a failed kernel
// Says on stderr what is wrong with a call, beyond what an error's number can say.
cudaError_t complain(cudaError_t error, const std::string& text);

}  // namespace aisc::emulated_gpu
