// The ranks of an emulated NCCL communicator, and how their operations meet: each is an operation
// of its rank's stream, which says what it brings and waits until it was served. Whoever comes last
// moves all the data. Ranks that ask for different things wait for ever, as real ones do, until
// they are aborted.
#pragma once

#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace aisc::emulated_gpu {

struct Part {
  enum class Kind { Send, Receive, AllReduce, Reduce, ReduceScatter, AllGather, Broadcast };
  Kind kind;
  const void* in;
  void* out;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t op = ncclSum;
  int peer = 0;                // or root
  std::uint64_t sequence = 0;  // of a collective, among those of the communicator

  bool is_transfer() const { return kind == Kind::Send || kind == Kind::Receive; }
  bool agrees_with(const Part& other) const;
};

// Elements that a rank of `size` gives and gets, 0 where it need not.
std::size_t elements_in(const Part& part, int rank, int size);
std::size_t elements_out(const Part& part, int rank, int size);
std::size_t bytes_of(ncclDataType_t type);

// Performs a collective whose parts, one for each rank, agree. In place is possible.
void perform(const std::vector<Part>& parts);

class Clique;

// One rank's side of a communicator. What is not const is guarded by the clique's mutex.
struct NcclRank {
  const int rank;
  const int size;
  const int device;
  const bool blocking;
  const std::shared_ptr<Clique> clique;
  bool aborted = false;
  std::uint64_t collectives = 0;
  int pending = 0;                                // operations that were asked for and are not over
  std::vector<std::function<void()>> deferred{};  // by a rank that does not block: see nccl_api.cpp
};

class Clique {
 public:
  explicit Clique(int size);

  // Returns false when `rank` is taken.
  bool join(const NcclRank& rank);
  // Runs in the rank's stream: returns when all parts were served, or the rank was aborted.
  void serve(NcclRank& self, const std::vector<Part>& parts);

  std::mutex mutex;
  std::condition_variable changed;

  // With the mutex held:
  bool complete() const { return joined_ == static_cast<int>(devices_.size()); }
  ncclResult_t error() const { return error_; }

 private:
  struct Transfer {
    Part part;
    bool done = false;
  };
  struct Meeting {
    std::vector<std::optional<Part>> parts;
    int arrived = 0;
    bool done = false;
  };
  using Pair = std::pair<int, int>;  // from, to

  void post(int rank, Transfer& transfer);
  void withdraw(int rank, Transfer& transfer);

  std::vector<std::optional<int>> devices_;
  int joined_ = 0;
  ncclResult_t error_ = ncclSuccess;
  std::map<std::uint64_t, std::shared_ptr<Meeting>> meetings_;
  std::map<Pair, std::deque<Transfer*>> sends_, receives_;
};

}  // namespace aisc::emulated_gpu
