// The ranks that work together, and what they do together. One interface; the backends (threads,
// MPI, NCCL) differ only in how the bytes move.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/comm/buffer.h"
#include "common/comm/call.h"
#include "common/core/work.h"

namespace aisc {

struct Plan;
struct PlanTable;

// One send and one receive of an exchange, either of which may be empty. A buffer of 0 elements is
// no message: both sides know the count, so nobody waits for it.
struct Transfer {
  ConstBuffer in{};  // goes to rank `to`
  int to = 0;
  Buffer out{};  // comes from rank `from`
  int from = 0;
};

// A collective call with its buffers, as backends and plans receive it: checked, complete. Of
// all_reduce and broadcast `in` and `out` are the same memory; where only the root uses a buffer,
// the others' may be anything.
struct Collective {
  Call call;
  ConstBuffer in{};
  Buffer out{};
  // all_to_all_v, and all_to_all as equal counts: elements for and from each rank, packed by rank.
  std::vector<std::int64_t> send_counts{}, recv_counts{};

  // False of the buffer of reduce, gather and scatter that only the root uses, elsewhere.
  bool uses_in(int rank) const { return call.op != CommOp::Scatter || rank == call.peer; }
  bool uses_out(int rank) const {
    return (call.op != CommOp::Reduce && call.op != CommOp::Gather) || rank == call.peer;
  }
};

// What a rank has asked for so far. Payload of an operation is the size of the caller's input (of
// the output where there is no input), the same on every backend; of an exchange the sum of its
// inputs. Messages and wire bytes are those that this rank sent as messages: by exchange, send, and
// collectives that ran as plans; a backend's own collectives count none.
struct CommStats {
  struct Row {
    std::int64_t calls = 0;
    std::int64_t payload_bytes = 0;
  };
  struct Peer {
    std::int64_t messages = 0;
    std::int64_t wire_bytes = 0;
    std::int64_t between_nodes = 0;  // of these bytes, in virtual time, where there are nodes
  };
  std::array<Row, kCommOpCount> rows{};
  std::map<int, Peer> peers;  // by the rank that was sent to
  std::int64_t steps = 0;     // of plans
  // Copied between GPUs and the host for backends that reach host memory alone, there and back.
  std::int64_t staged_bytes = 0;

  const Row& operator[](CommOp op) const { return rows[static_cast<std::size_t>(op)]; }
  Peer sent() const;  // the sum over peers
};

// Public calls check their arguments and throw Error naming communicator, rank, operation and both
// values; the private do_*() are the backend. Collectives on one communicator run in the order in
// which they are issued, which must be the same on all its ranks; sends and receives run beside
// them, first in first out per pair of ranks. Independent directions are best given communicators
// of their own (split). Nothing but barrier() and split() blocks: the returned Work does. (A
// backend may also wait where a rank is very many operations ahead of another, 64 with threads, or
// goes from plans to operations of the backend's own; and where what a GPU computes must first be
// copied to the host.) All communicators of a rank are used by one thread at a time. n is size().
//
// Buffers lie on the host. Of ranks that launch() gives a GPU, and of make_self_communicator(), any
// may lie on a GPU; elsewhere that is an Error.
//
// In place: `in` may be `out` (reduce), this rank's chunk of `out` (all_gather, gather), and `out`
// may be this rank's chunk of `in` (reduce_scatter, scatter). Any other overlap is an Error, so
// that what works with one rank works with many.
//
// Every blocking call ends with an Error within the communicator's timeout, naming the ranks that
// are missing and what they did last; after an error all communicators of these ranks are unusable.
class Communicator {
 public:
  virtual ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }  // "world", "tp", ...: in every error

  // The primitive: sends and receives with no order among them, first in first out per pair of
  // ranks. What is received may overlap no other buffer of the exchange.
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
  // this rank takes no part and gets nullptr. The name appears in every error. The algorithms in
  // use are inherited.
  std::unique_ptr<Communicator> split(int color, int key, std::string name);
  // What `part` sends from now on counts as that of one that was split from this.
  std::unique_ptr<Communicator> adopt(std::unique_ptr<Communicator> part) const;

  // From now on collectives run by these plans; an operation without one runs as the backend does
  // it best. Must be the same on all ranks.
  void use_plans(PlanTable plans);

  CommStats stats() const { return stats_; }
  // What this rank has sent on this communicator and on all that were split from it, or from the
  // one that it was split from.
  CommStats::Peer sent_by_family() const { return *family_; }

  // Throws what has gone wrong on any of its ranks, as far as this one knows; never waits.
  void check() { do_check(); }

 protected:
  // Where a backend reads and writes. Of a call on a communicator of the host's memory alone, a
  // buffer on a GPU is refused.
  enum class Reach { Host, HostAndGpu };
  Communicator(int rank, int size, std::string name, Reach reach = Reach::Host);
  std::string where(CommOp op) const;  // "tp, rank 1: all_gather: ", the head of every error

  // For communicators that stand on another one: its operations as its backend gets them. A message
  // of elements at nullptr is compared with its other side and moves nothing.
  static Work exchange_on(Communicator& other, const Call& call,
                          std::span<const Transfer> transfers) {
    return other.do_exchange(call, transfers);
  }
  static Work collective_on(Communicator& other, Collective collective);
  static Work plan_on(Communicator& other, Collective collective, Plan plan);
  const PlanTable* plans() const { return plans_.get(); }  // in use; null: the backend's own
  static bool runs_only_plans_on(const Communicator& other) { return other.runs_only_plans(); }
  void count_staged(std::int64_t bytes) { stats_.staged_bytes += bytes; }

 private:
  class Checks;  // of the arguments of one call

  // Arguments have been checked. send and recv arrive as exchanges of one transfer; `call` is what
  // the caller wrote, for errors.
  virtual Work do_exchange(const Call& call, std::span<const Transfer> transfers) = 0;
  virtual Work do_collective(Collective collective) = 0;  // never Split
  virtual Work do_plan(Collective collective, Plan plan) = 0;
  virtual std::unique_ptr<Communicator> do_split(int color, int key, std::string name) = 0;
  virtual void do_check() {}
  // In virtual time: whether a message to this rank leaves its node.
  virtual bool leaves_node(int /*to*/) const { return false; }
  // True: use_plans() fills what its table leaves open with the default plans.
  virtual bool runs_only_plans() const { return false; }

  Work start(Collective collective, std::size_t payload_bytes);
  Work start_exchange(const Call& call, std::span<const Transfer> transfers,
                      std::size_t payload_bytes);
  Plan plan_for(const Collective& collective);
  void count_call(CommOp op, std::size_t payload_bytes);
  void count_message(int to, std::size_t bytes);

  const int rank_, size_;
  const std::string name_;
  const Reach reach_;
  CommStats stats_;
  std::shared_ptr<CommStats::Peer> family_ = std::make_shared<CommStats::Peer>();
  std::unique_ptr<PlanTable> plans_;
};

// Waits until one of `works` is over, the earliest in virtual time, and returns its index; that
// Work is then empty. Empty Works are over at once: the first is returned. All must be of
// communicators of this thread's rank. Throws its error, or Error if `works` is empty.
std::size_t wait_any(std::span<Work> works);

// The communicator of one rank, for buffers on the host and on GPUs: the serial program is the
// parallel program on this.
std::unique_ptr<Communicator> make_self_communicator(std::string name = "world");

}  // namespace aisc
