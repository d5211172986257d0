#include "common/comm/nccl/enqueue.h"

#include <cuda_runtime_api.h>

#include <deque>
#include <memory>
#include <utility>

#include "common/comm/nccl/check.h"
#include "common/comm/nccl/reduce.h"
#include "common/core/cuda/check.h"

namespace aisc::nccl {
namespace {

using Kind = PlanAction::Kind;
using Steps = std::vector<std::function<void()>>;

// One call on one link: NCCL's functions with what is the same for all of them.
class Caller {
 public:
  Caller(const Collective& collective, const Link& link, int rank, int size)
      : call_(collective.call),
        in_(static_cast<const std::byte*>(collective.in.view().raw())),
        out_(static_cast<std::byte*>(collective.out.view().raw())),
        comm_(link.comm()),
        stream_(link.stream()),
        rank_(rank),
        size_(size),
        count_(static_cast<std::size_t>(call_.count)),
        type_(type_of(call_.dtype)),
        op_(op_of(call_.reduce)) {}

  void enqueue(const Collective& collective) const {
    switch (call_.op) {
      case CommOp::AllReduce:
        return require(ncclAllReduce(out_, out_, count_, type_, op_, comm_, stream_));
      case CommOp::Reduce:
        return require(ncclReduce(in_, at_root() ? out_ : nullptr, count_, type_, op_, root(),
                                  comm_, stream_));
      case CommOp::ReduceScatter:
        return require(ncclReduceScatter(in_, out_, count_, type_, op_, comm_, stream_));
      case CommOp::AllGather:
        return require(ncclAllGather(in_, out_, count_, type_, comm_, stream_));
      case CommOp::Broadcast:
        return require(ncclBroadcast(out_, out_, count_, type_, root(), comm_, stream_));
      case CommOp::Gather:
        return at_root() ? swap(0, nullptr, chunk(), out_) : send(in_, count_, root());
      case CommOp::Scatter:
        return at_root() ? swap(chunk(), in_, 0, nullptr) : recv(out_, count_, root());
      case CommOp::AllToAll:
      case CommOp::AllToAllV:
        return swap_counts(collective.send_counts, collective.recv_counts);
      default:
        fail(std::string("NCCL: ") + name_of(call_.op) + " is no collective");
    }
  }

  // What a rank sends itself.
  void copy_own(const Collective& c) const {
    const std::size_t bytes = chunk(), mine = static_cast<std::size_t>(rank_) * bytes;
    if (call_.op == CommOp::Gather && at_root()) copy(out_ + mine, in_, bytes, stream_);
    if (call_.op == CommOp::Scatter && at_root()) copy(out_, in_ + mine, bytes, stream_);
    if (call_.op != CommOp::AllToAll && call_.op != CommOp::AllToAllV) return;
    const auto before = [&](const std::vector<std::int64_t>& counts) {
      std::int64_t sum = 0;
      for (int r = 0; r < rank_; ++r) sum += counts[static_cast<std::size_t>(r)];
      return static_cast<std::size_t>(sum) * size_of(call_.dtype);
    };
    const auto count = c.send_counts[static_cast<std::size_t>(rank_)];
    copy(out_ + before(c.recv_counts), in_ + before(c.send_counts),
         static_cast<std::size_t>(count) * size_of(call_.dtype), stream_);
  }

 private:
  int root() const { return call_.peer; }
  bool at_root() const { return rank_ == call_.peer; }
  std::size_t chunk() const { return count_ * size_of(call_.dtype); }  // bytes

  void require(ncclResult_t result) const { check(result, comm_, to_string(call_)); }
  void send(const std::byte* from, std::size_t count, int peer) const {
    if (count > 0) require(ncclSend(from, count, type_, peer, comm_, stream_));
  }
  void recv(std::byte* to, std::size_t count, int peer) const {
    if (count > 0) require(ncclRecv(to, count, type_, peer, comm_, stream_));
  }
  // A chunk to, or from, each other rank; they lie so many bytes apart, 0: none.
  void swap(std::size_t in_bytes, const std::byte* in, std::size_t out_bytes,
            std::byte* out) const {
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      const auto at = static_cast<std::size_t>(r);
      if (in_bytes > 0) send(in + at * in_bytes, count_, r);
      if (out_bytes > 0) recv(out + at * out_bytes, count_, r);
    }
  }
  void swap_counts(const std::vector<std::int64_t>& send_counts,
                   const std::vector<std::int64_t>& recv_counts) const {
    const std::byte* in = in_;
    std::byte* out = out_;
    for (int r = 0; r < size_; ++r) {
      const auto to = static_cast<std::size_t>(send_counts[static_cast<std::size_t>(r)]);
      const auto from = static_cast<std::size_t>(recv_counts[static_cast<std::size_t>(r)]);
      if (r != rank_) {
        send(in, to, r);
        recv(out, from, r);
      }
      in += to * size_of(call_.dtype);
      out += from * size_of(call_.dtype);
    }
  }

  const Call& call_;
  const std::byte* const in_;
  std::byte* const out_;
  const ncclComm_t comm_;
  const cudaStream_t stream_;
  const int rank_, size_;
  const std::size_t count_;
  const ncclDataType_t type_;
  const ncclRedOp_t op_;
};

// A plan on its way, one step after another.
struct PlanRun {
  Collective collective;
  Plan plan;
  View scratch;
  Link& link;
  int rank;

  void* data(const Piece& piece) const {
    const ConstView& memory = piece.where == Piece::Where::In    ? collective.in.view()
                              : piece.where == Piece::Where::Out ? collective.out.view()
                                                                 : scratch;
    return static_cast<std::byte*>(const_cast<void*>(memory.raw())) +
           static_cast<std::size_t>(piece.begin) * size_of(collective.call.dtype);
  }
  std::size_t bytes(const Piece& piece) const {
    return static_cast<std::size_t>(piece.count) * size_of(collective.call.dtype);
  }

  // The messages of step s. Of 0 bytes they are for control, which has had its own; those to this
  // rank itself are copies.
  void begin(std::size_t s) const {
    const ncclDataType_t type = type_of(collective.call.dtype);
    std::deque<Piece> own;
    const auto require = [&](ncclResult_t result) { check(result, link.comm(), plan.name); };
    for (const PlanAction& action : plan.step(s)) {
      const auto count = [](const Piece& piece) { return static_cast<std::size_t>(piece.count); };
      if (action.kind == Kind::Send && action.peer == rank) own.push_back(action.from);
      if (action.peer == rank) continue;
      if (action.kind == Kind::Send && action.from.count > 0)
        require(ncclSend(data(action.from), count(action.from), type, action.peer, link.comm(),
                         link.stream()));
      if (action.kind == Kind::Recv && action.to.count > 0)
        require(ncclRecv(data(action.to), count(action.to), type, action.peer, link.comm(),
                         link.stream()));
    }
    for (const PlanAction& action : plan.step(s)) {
      if (action.kind != Kind::Recv || action.peer != rank || own.empty()) continue;
      copy(data(action.to), data(own.front()), bytes(action.to), link.stream());
      own.pop_front();
    }
  }

  void finish(std::size_t s) const {
    const Call& call = collective.call;
    for (const PlanAction& action : plan.step(s)) {
      if (action.to.count == 0) continue;
      if (action.kind == Kind::Copy)
        copy(data(action.to), data(action.from), bytes(action.to), link.stream());
      if (action.kind == Kind::Reduce)
        reduce_into(data(action.to), data(action.from), action.to.count, call.dtype, call.reduce,
                    link.stream());
    }
  }
};

}  // namespace

void copy(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  if (bytes > 0 && to != from)
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), "copy");
}

Steps steps_of(const Collective& c, Link& link, int rank, int size) {
  const bool moves = c.in.count() > 0 || c.out.count() > 0;
  if (!moves) return {};
  auto shared = std::make_shared<Collective>(
      Collective{c.call, c.in.view(), c.out.view(), c.send_counts, c.recv_counts});
  return {[shared, &link, rank, size] {
    const Caller caller(*shared, link, rank, size);
    caller.copy_own(*shared);
    caller.enqueue(*shared);
  }};
}

// Step s begins with what is left of the one before.
Steps steps_of(Collective collective, Plan plan, const Tensor& scratch, Link& link, int rank) {
  const auto run = std::make_shared<PlanRun>(
      PlanRun{std::move(collective), std::move(plan), scratch.view(), link, rank});
  Steps steps;
  for (std::size_t s = 0; s <= run->plan.steps(); ++s)
    steps.emplace_back([run, s] {
      if (s > 0) run->finish(s - 1);
      if (s < run->plan.steps()) run->begin(s);
    });
  return steps;
}

Plan agreement_plan(const Collective& c, int rank, int size) {
  if (c.call.op != CommOp::AllToAllV) return dissemination_barrier(c, rank, size);
  Plan plan{.name = "counts"};
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    const auto at = static_cast<std::size_t>(r);
    plan.actions.push_back({.kind = Kind::Send,
                            .peer = r,
                            .from = {.where = Piece::Where::In, .count = c.send_counts[at]}});
    plan.actions.push_back({.kind = Kind::Recv,
                            .peer = r,
                            .to = {.where = Piece::Where::Out, .count = c.recv_counts[at]}});
  }
  plan.end_step();
  return plan;
}

}  // namespace aisc::nccl
