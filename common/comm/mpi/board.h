// What each rank of this node is doing, in memory that they share: so that the others can still say
// it when one has been killed.
#pragma once

#include <mpi.h>
#include <sched.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "common/comm/backend/diagnose.h"

namespace aisc::mpi {

// A call as bytes, for shared memory and messages.
struct RawCall {
  bool is_set = false;
  Call call{};
  std::uint64_t sequence = 0;
  char communicator[48] = {};  // cut if longer

  void set(const Call& its_call, std::uint64_t its_sequence, const std::string& its_communicator);
  void clear() { is_set = false; }
  std::optional<PlacedCall> get() const;
};

// Written by its rank without a lock; who reads it meanwhile may see half of a change.
struct alignas(64) Slot {
  int pid = 0;
  std::uint64_t pid_space = 0;  // containers have their own numbers
  int rank = 0;
  cpu_set_t cores;  // that the rank may use
  bool finished = false;
  RawCall last_call, waits_in;
};

class Board {
 public:
  // Collective over `world`; the ranks are its.
  Board(MPI_Comm world, int rank);
  ~Board();  // collective
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  Slot& mine() { return *mine_; }
  const Slot* slot_of(int rank) const;  // nullptr: on another node
  int rank_on_node() const { return static_cast<int>(mine_ - slots_); }
  // Cores that this rank may use, divided by the ranks that may use them too; at least 1.
  int share_of_cores() const;
  bool has_own_core() const;
  // The cores that would be this rank's alone if all who may use them shared them out; nothing
  // where there are not enough, or where the ranks may use different ones.
  std::optional<cpu_set_t> own_cores() const;

  // The rank of this node whose process is gone, or -1.
  int gone_rank() const;
  // "rank 2 (process 4711) is gone", then a line for each rank of the node: what it did last. To
  // one of all who ask; the others get an empty text.
  std::string report_of(int gone);
  bool claim_report();  // true for the first rank of the node that asks

 private:
  struct Head {
    std::atomic<bool> reported = false;  // of several processes: without a lock
    static_assert(std::atomic<bool>::is_always_lock_free);
  };
  int sharers() const;

  MPI_Comm node_ = MPI_COMM_NULL;
  MPI_Win window_ = MPI_WIN_NULL;
  Head* head_ = nullptr;
  Slot* slots_ = nullptr;  // of the node, by rank on the node
  Slot* mine_ = nullptr;
  int count_ = 0;
};

}  // namespace aisc::mpi
