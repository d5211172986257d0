// The ranks that work together, and what they do together. One interface; the backends (one rank,
// threads, MPI, NCCL) differ only in how the bytes move.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/comm/buffer.h"
#include "common/core/work.h"

namespace aisc {

enum class ReduceOp { Sum, Product, Min, Max };  // no average: dividing is something one must see

// One send and one receive of a group, either of which may be empty. A buffer of 0 elements is no
// message: both sides know the count, so nobody waits for it.
struct Transfer {
  ConstBuffer in{};  // goes to rank `to`
  int to = 0;
  Buffer out{};  // comes from rank `from`
  int from = 0;
};

enum class CommOp {
  Exchange,
  Send,
  Recv,
  AllReduce,
  Reduce,
  ReduceScatter,
  AllGather,
  Gather,
  Scatter,
  Broadcast,
  AllToAll,
  AllToAllV,
  Barrier
};
inline constexpr int kCommOpCount = 13;
const char* name_of(CommOp op);  // "all_reduce", ...

// What a rank has asked for so far: calls and payload bytes of each operation. Payload is the size
// of the caller's input (of the output where there is no input), the same on every backend; of an
// exchange the sum of its inputs.
struct CommStats {
  struct Row {
    std::int64_t calls = 0;
    std::int64_t payload_bytes = 0;
  };
  std::array<Row, kCommOpCount> rows{};
  const Row& operator[](CommOp op) const { return rows[static_cast<std::size_t>(op)]; }
};

// Public calls check their arguments and throw Error naming communicator, rank, operation and both
// values; the private do_*() are the backend. Operations on one communicator run in the order in
// which they are issued, which must be the same on all its ranks. Nothing but barrier() and split()
// blocks: the returned Work does. A communicator is used by one thread at a time. n is size().
//
// In place: `in` may be `out` (reduce), this rank's chunk of `out` (all_gather, gather), and `out`
// may be this rank's chunk of `in` (reduce_scatter, scatter). Any other overlap is an Error, so
// that what works with one rank works with many.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }  // "world", "tp", ...: in every error

  // The primitive: sends and receives with no order among them, first in first out per pair of
  // ranks. What is received may overlap no other buffer of the group.
  Work exchange(std::span<const Transfer> transfers);
  Work send(ConstBuffer in, int to);
  Work recv(Buffer out, int from);

  Work all_reduce(Buffer inout, ReduceOp op = ReduceOp::Sum);
  Work reduce(ConstBuffer in, Buffer out, int root,
              ReduceOp op = ReduceOp::Sum);  // out: root's only
  // in.count == n * out.count; rank r receives the sum of chunks r.
  Work reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op = ReduceOp::Sum);
  Work all_gather(ConstBuffer in, Buffer out);         // out.count == n * in.count, by rank
  Work gather(ConstBuffer in, Buffer out, int root);   // out as all_gather's, used on root only
  Work scatter(ConstBuffer in, Buffer out, int root);  // in.count == n * out.count on root
  Work broadcast(Buffer inout, int root);
  // Chunk r of in goes to rank r. in.count == out.count, divisible by n.
  Work all_to_all(ConstBuffer in, Buffer out);
  // Packed by rank: send_counts[r] elements of `in` go to rank r, recv_counts[r] come from it. The
  // counts add up to the buffers' counts.
  Work all_to_all_v(ConstBuffer in, std::span<const std::int64_t> send_counts, Buffer out,
                    std::span<const std::int64_t> recv_counts);
  void barrier();

  // Ranks of equal color form a new communicator, ordered by (key, rank). Collective. color < 0:
  // this rank takes no part and gets nullptr. The name appears in every error.
  std::unique_ptr<Communicator> split(int color, int key, std::string name);

  CommStats stats() const { return stats_; }

 protected:
  Communicator(int rank, int size, std::string name);
  std::string where(CommOp op) const;  // "tp, rank 1: all_gather: ", the head of every error

 private:
  class Call;  // checks the arguments of one call

  // Arguments have been checked. Where only the root uses a buffer, the others' may be anything.
  // send and recv arrive as exchanges, all_to_all as all_to_all_v with equal counts; `call` is what
  // the caller wrote, for errors.
  virtual Work do_exchange(CommOp call, std::span<const Transfer> transfers) = 0;
  virtual Work do_all_reduce(Buffer inout, ReduceOp op) = 0;
  virtual Work do_reduce(ConstBuffer in, Buffer out, int root, ReduceOp op) = 0;
  virtual Work do_reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op) = 0;
  virtual Work do_all_gather(ConstBuffer in, Buffer out) = 0;
  virtual Work do_gather(ConstBuffer in, Buffer out, int root) = 0;
  virtual Work do_scatter(ConstBuffer in, Buffer out, int root) = 0;
  virtual Work do_broadcast(Buffer inout, int root) = 0;
  virtual Work do_all_to_all_v(CommOp call, ConstBuffer in,
                               std::span<const std::int64_t> send_counts, Buffer out,
                               std::span<const std::int64_t> recv_counts) = 0;
  virtual void do_barrier() = 0;
  virtual std::unique_ptr<Communicator> do_split(int color, int key, std::string name) = 0;

  void count(CommOp op, std::size_t payload_bytes);

  const int rank_, size_;
  const std::string name_;
  CommStats stats_;
};

// The communicator of one rank: collectives copy locally, send and recv meet inside one exchange or
// in the order of issue. The serial program is the parallel program on this.
std::unique_ptr<Communicator> make_self_communicator(std::string name = "world");

}  // namespace aisc
