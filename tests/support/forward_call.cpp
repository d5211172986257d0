#include "tests/support/forward_call.h"

#include <utility>
#include <vector>

#include "common/core/error.h"

namespace aisc {
namespace {

Work call_by_name(Communicator& to, const Collective& c) {
  const Call& call = c.call;
  switch (call.op) {
    case CommOp::AllReduce:
      return to.all_reduce(c.out.share(), call.reduce);
    case CommOp::Reduce:
      return to.reduce(c.in.share(), c.out.share(), call.peer, call.reduce);
    case CommOp::ReduceScatter:
      return to.reduce_scatter(c.in.share(), c.out.share(), call.reduce);
    case CommOp::AllGather:
      return to.all_gather(c.in.share(), c.out.share());
    case CommOp::Gather:
      return to.gather(c.in.share(), c.out.share(), call.peer);
    case CommOp::Scatter:
      return to.scatter(c.in.share(), c.out.share(), call.peer);
    case CommOp::Broadcast:
      return to.broadcast(c.out.share(), call.peer);
    case CommOp::AllToAll:
      return to.all_to_all(c.in.share(), c.out.share());
    case CommOp::AllToAllV:
      return to.all_to_all_v(c.in.share(), c.send_counts, c.out.share(), c.recv_counts);
    case CommOp::Barrier:
      to.barrier();
      return Work();
    default:
      fail(std::string(name_of(call.op)) + " is not a collective with a Work");
  }
}

}  // namespace

Work forward(Communicator& to, const Call& call, std::span<const Transfer> transfers) {
  if (call.op == CommOp::Send) return to.send(transfers[0].in.share(), transfers[0].to);
  if (call.op == CommOp::Recv) return to.recv(transfers[0].out.share(), transfers[0].from);
  return to.exchange(transfers);
}

Work forward(Communicator& to, const Collective& collective, const Plan* plan) {
  if (plan == nullptr) return call_by_name(to, collective);
  PlanTable table;
  table[collective.call.op] = [plan](const Collective&, int, int) { return *plan; };
  to.use_plans(std::move(table));
  Work work = call_by_name(to, collective);
  to.use_plans({});
  return work;
}

std::size_t wait_any_inside(std::span<Work* const> works) {
  std::vector<PendingOperation*> operations;
  for (std::size_t i = 0; i < works.size(); ++i) {
    if (!works[i]->pending()) return i;
    operations.push_back(works[i]->pending());
  }
  return PendingOperation::wait_any_of(operations);
}

}  // namespace aisc
