// MPI as this process has it, once: initialized by the first launch(), finalized when the process
// exits. MPI itself is the process's, so this is the one place of the library that is, too.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <string>

#include "common/comm/mpi/board.h"

namespace aisc::mpi {

// Throws Error with MPI's text where `status` is one.
void require(int status, const char* call);

struct World;

class Session {
 public:
  // Of the process. Throws Error where MPI cannot be initialized, or does not see the processes
  // that the launcher started.
  static Session& get();
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  MPI_Comm comm() const { return comm_; }  // a duplicate of MPI_COMM_WORLD; returns errors
  int rank() const { return rank_; }
  int size() const { return size_; }
  Board& board() { return *board_; }
  // MPI itself lets others run whenever it finds nothing to do; doing it again would only cost
  // time.
  bool yields() const { return yields_; }
  bool same_node(int rank) const { return board_->slot_of(rank) != nullptr; }

  // Identities of communicators. A message's tag is made of its communicator's, so that no two
  // communicators that share a pair of ranks ever have the same.
  std::int64_t next_id = 0;
  // Takes an identity that all members of a new communicator have agreed on; the next free one,
  // which is returned. Both throw Error where there are no more.
  void take_id(std::int64_t id);
  std::int64_t take_next_id();
  static constexpr int kTagsPerId = 4;

  World* running = nullptr;  // the launch in progress
  bool broken = false;       // a rank is gone: finalizing would wait for it

 private:
  Session();

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  bool yields_ = false;
  std::int64_t id_limit_ = 0;
  std::unique_ptr<Board> board_;
};

}  // namespace aisc::mpi
