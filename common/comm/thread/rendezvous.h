// Collectives of threads are meetings: every rank posts where its buffers are, the last makes the
// operation ready, and whoever waits copies and adds pieces of it straight from the ranks' buffers
// to the ranks' buffers. Sums are taken in the order of ranks whoever takes them, so that they are
// the same to the last bit on all ranks and from run to run.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "common/comm/thread/world.h"

namespace aisc::thread {

struct CommunicatorState;

// What only some operations need.
struct PostDetails {
  std::vector<std::int64_t> send_counts{}, recv_counts{};
  // split
  int color = 0, key = 0;
  const std::string* name = nullptr;
  std::shared_ptr<CommunicatorState>* part = nullptr;
  int* part_rank = nullptr;
  double* seconds = nullptr;  // virtual time: in, the rank's; out, the latest of all
};

// What one rank brings to an operation: a cache line, which the last to arrive reads.
struct alignas(64) Post {
  Call call;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::unique_ptr<const PostDetails> details{};
};

// The meetings of one communicator's ranks, in a ring of cells: operation k is in cell k % size
// until it is over. A rank that is a whole ring ahead of another waits for it.
class Rendezvous {
 public:
  explicit Rendezvous(CommunicatorState& shared);

  // Rank brings its part to operation k, which is its k-th call here. Does the whole operation if
  // this rank is the last to arrive, its predecessors are over, and it is small.
  // Needs room: operation k - ring() must be over.
  void post(int rank, std::uint64_t k, Post post);
  std::uint64_t ring() const { return cell_count_; }
  bool is_over(std::uint64_t k) const { return completed_.load() > k; }
  std::vector<int> missing(std::uint64_t k) const;  // world ranks
  // When k was completed; its cell may have been used again, then nothing.
  std::optional<Time> end_time(std::uint64_t k) const;
  // After a failure of the world: returns when nobody touches the buffers of operation k any more.
  void withdraw(std::uint64_t k) const;

 private:
  struct alignas(64) Cell {
    std::atomic<std::uint64_t> arrived = 0;  // posts, counted through all uses of the cell
    // The operation's number and how many of its pieces are taken from its front and its back,
    // (k << 24) + (front << 12) + back: names k from the moment when k is ready. One word, so that
    // nobody takes a piece of the next use.
    std::atomic<std::uint64_t> taken = ~std::uint64_t{0};
    std::atomic<std::int64_t> unfinished = 0;
    std::atomic<std::int64_t> pieces = 0;
    std::atomic<std::int64_t> end_ticks = 0;               // of the steady clock, 0: not measured
    std::unique_ptr<Post[]> posts;                         // by rank
    std::unique_ptr<std::atomic<std::uint64_t>[]> posted;  // by rank: k + 1 of its last post here
  };
  class PieceJob;

  Cell& cell(std::uint64_t k) const { return cells_[k % cell_count_]; }
  bool is_ready(std::uint64_t k) const;
  bool check(const Cell& cell) const;
  void make_ready(int rank, std::uint64_t k, Cell& cell);
  void start(int rank, std::uint64_t k);
  bool run_piece(int rank, std::uint64_t k);
  void run(const Cell& cell, std::int64_t piece) const;
  void split(const Cell& cell) const;
  void complete(int rank, std::uint64_t k);

  CommunicatorState& shared_;
  const std::uint64_t cell_count_;
  const std::unique_ptr<Cell[]> cells_;
  alignas(64) std::atomic<std::uint64_t> completed_ = 0;  // operations that are over, in order
};

}  // namespace aisc::thread
