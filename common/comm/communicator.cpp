// What is the same on every backend: the checks of the arguments and the statistics.
#include "common/comm/communicator.h"

#include <fmt/format.h>

#include <numeric>
#include <utility>
#include <vector>

#include "common/comm/plan.h"

namespace aisc {
namespace {

// An argument of a call, with the name under which an error mentions it.
struct Argument {
  const char* name;
  const ConstView& view;
};

const std::byte* begin_of(const ConstView& view) {
  return static_cast<const std::byte*>(view.raw());
}

bool overlap(const ConstView& a, const ConstView& b) {
  if (a.bytes() == 0 || b.bytes() == 0) return false;
  return begin_of(a) < begin_of(b) + b.bytes() && begin_of(b) < begin_of(a) + a.bytes();
}

}  // namespace

// One call and the checks of its arguments. Builds no text unless a check fails: a small all_reduce
// takes less time than a string.
class Communicator::Checks {
 public:
  Checks(const Communicator& comm, CommOp op) : comm_(comm), op_(op) {}

  template <class... Values>
  [[noreturn]] void fail(fmt::format_string<Values...> text, Values&&... values) const {
    aisc::fail(comm_.where(op_) + fmt::format(text, std::forward<Values>(values)...));
  }

  void check_rank(const char* name, int rank) const {
    if (rank < 0 || rank >= comm_.size())
      fail("{} {} is not a rank of [0, size {})", name, rank, comm_.size());
  }
  void check_dtypes(const Argument& a, const Argument& b) const {
    if (a.view.dtype() != b.view.dtype() && a.view.count() + b.view.count() > 0)
      fail("{} is {}, {} is {}", a.name, name_of(a.view.dtype()), b.name, name_of(b.view.dtype()));
  }
  void check_equal(const Argument& a, const Argument& b) const {
    check_dtypes(a, b);
    if (a.view.count() != b.view.count())
      fail("{}.count {} != {}.count {}", a.name, a.view.count(), b.name, b.view.count());
  }
  void check_disjoint(const Argument& a, const Argument& b) const {
    if (overlap(a.view, b.view)) fail("{} and {} overlap", a.name, b.name);
  }
  void check_reach(const ConstView& view) const {
    if (comm_.reach_ == Reach::Host && view.count() > 0 && lies_on_gpu(view))
      fail("a buffer lies on {}, the host's memory was expected: this communicator reaches no GPU",
           view.device().name());
  }
  // `whole` is one chunk of `part`'s size per rank; if they overlap, `part` is this rank's chunk.
  void check_chunks(const Argument& whole, const Argument& part) const {
    check_dtypes(whole, part);
    if (whole.view.count() != comm_.size() * part.view.count())
      fail("{}.count {} != size {} * {}.count {}", whole.name, whole.view.count(), comm_.size(),
           part.name, part.view.count());
    const auto offset = static_cast<std::size_t>(comm_.rank()) * part.view.bytes();
    if (overlap(whole.view, part.view) && begin_of(part.view) != begin_of(whole.view) + offset)
      fail("{} overlaps {} and is not this rank's chunk of it", part.name, whole.name);
  }
  // A plan may be anybody's: it must stay within the ranks and the buffers.
  void check_plan(const Plan& plan, const Collective& c) const {
    const std::array limits{c.in.count(), c.out.count(), plan.scratch_count};
    if (!plan.actions.empty() && (plan.steps() == 0 || plan.step_ends.back() < plan.actions.size()))
      fail("plan \"{}\": its last step has no end", plan.name);
    for (const PlanAction& action : plan.actions) {
      const bool is_message =
          action.kind == PlanAction::Kind::Send || action.kind == PlanAction::Kind::Recv;
      if (is_message && (action.peer < 0 || action.peer >= comm_.size()))
        fail("plan \"{}\": peer {} is not a rank of [0, size {})", plan.name, action.peer,
             comm_.size());
      if (!is_message && action.from.count != action.to.count)
        fail("plan \"{}\": {} elements are copied or added to {}", plan.name, action.from.count,
             action.to.count);
      for (const Piece& piece : {action.from, action.to}) {
        const std::int64_t limit = limits[static_cast<std::size_t>(piece.where)];
        if (piece.count > 0 && (piece.begin < 0 || piece.begin + piece.count > limit))
          fail("plan \"{}\": elements [{}, {}) of a buffer of {}", plan.name, piece.begin,
               piece.begin + piece.count, limit);
      }
    }
  }
  void check_counts(const char* name, std::span<const std::int64_t> counts,
                    const Argument& buffer) const {
    if (counts.size() != static_cast<std::size_t>(comm_.size()))
      fail("{} has {} values, size is {}", name, counts.size(), comm_.size());
    for (std::size_t r = 0; r < counts.size(); ++r)
      if (counts[r] < 0) fail("{}[{}] is {}", name, r, counts[r]);
    const std::int64_t sum = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    if (sum != buffer.view.count())
      fail("{} add up to {} != {}.count {}", name, sum, buffer.name, buffer.view.count());
  }

 private:
  const Communicator& comm_;
  const CommOp op_;
};

CommStats::Peer CommStats::sent() const {
  Peer sum;
  for (const auto& [rank, peer] : peers) {
    sum.messages += peer.messages;
    sum.wire_bytes += peer.wire_bytes;
    sum.between_nodes += peer.between_nodes;
  }
  return sum;
}

Communicator::Communicator(int rank, int size, std::string name, Reach reach)
    : rank_(rank), size_(size), name_(std::move(name)), reach_(reach) {}

Communicator::~Communicator() = default;

std::string Communicator::where(CommOp op) const {
  return fmt::format("{}, rank {}: {}: ", name_, rank_, name_of(op));
}

void Communicator::use_plans(PlanTable plans) {
  if (runs_only_plans()) {
    const PlanTable defaults = default_plans();
    for (std::size_t op = 0; op < plans.makers.size(); ++op)
      if (!plans.makers[op]) plans.makers[op] = defaults.makers[op];
  }
  plans_ = std::make_unique<PlanTable>(std::move(plans));
}

void Communicator::count_call(CommOp op, std::size_t payload_bytes) {
  CommStats::Row& row = stats_.rows[static_cast<std::size_t>(op)];
  ++row.calls;
  row.payload_bytes += static_cast<std::int64_t>(payload_bytes);
}

void Communicator::count_message(int to, std::size_t bytes) {
  const bool leaves = leaves_node(to);
  for (CommStats::Peer* sent : {&stats_.peers[to], family_.get()}) {
    ++sent->messages;
    sent->wire_bytes += static_cast<std::int64_t>(bytes);
    if (leaves) sent->between_nodes += static_cast<std::int64_t>(bytes);
  }
}

Work Communicator::collective_on(Communicator& other, Collective collective) {
  return other.do_collective(std::move(collective));
}

Work Communicator::plan_on(Communicator& other, Collective collective, Plan plan) {
  return other.do_plan(std::move(collective), std::move(plan));
}

Work Communicator::start_exchange(const Call& call, std::span<const Transfer> transfers,
                                  std::size_t payload_bytes) {
  const Checks checks(*this, call.op);
  for (const Transfer& t : transfers) {
    checks.check_reach(t.in.view());
    checks.check_reach(t.out.view());
  }
  count_call(call.op, payload_bytes);
  for (const Transfer& t : transfers)
    if (t.in.count() > 0) count_message(t.to, t.in.bytes());
  return do_exchange(call, transfers);
}

Work Communicator::exchange(std::span<const Transfer> transfers) {
  const Checks checks(*this, CommOp::Exchange);
  std::size_t bytes_in = 0, bytes_out = 0;
  for (const Transfer& t : transfers) {
    if (t.in.count() > 0) checks.check_rank("to", t.to);
    if (t.out.count() > 0) checks.check_rank("from", t.from);
    bytes_in += t.in.bytes();
    bytes_out += t.out.bytes();
  }
  return start_exchange({.op = CommOp::Exchange}, transfers, bytes_in > 0 ? bytes_in : bytes_out);
}

Work Communicator::send(ConstBuffer in, int to) {
  Checks(*this, CommOp::Send).check_rank("to", to);
  const std::size_t bytes = in.bytes();
  const Call call{.op = CommOp::Send, .count = in.count(), .dtype = in.dtype(), .peer = to};
  const Transfer transfer{.in = std::move(in), .to = to, .out = {}, .from = 0};
  return start_exchange(call, {&transfer, 1}, bytes);
}

Work Communicator::recv(Buffer out, int from) {
  Checks(*this, CommOp::Recv).check_rank("from", from);
  const std::size_t bytes = out.bytes();
  const Call call{.op = CommOp::Recv, .count = out.count(), .dtype = out.dtype(), .peer = from};
  const Transfer transfer{.in = {}, .to = 0, .out = std::move(out), .from = from};
  return start_exchange(call, {&transfer, 1}, bytes);
}

Work Communicator::start(Collective collective, std::size_t payload_bytes) {
  const CommOp op = collective.call.op;
  const Checks checks(*this, op);
  if (collective.uses_in(rank_)) checks.check_reach(collective.in.view());
  if (collective.uses_out(rank_)) checks.check_reach(collective.out.view());
  count_call(op, payload_bytes);
  // A plan is made, checked and counted before a byte of it moves.
  const bool by_plan = plans_ && (*plans_)[op];
  Plan plan;
  if (by_plan) plan = plan_for(collective);
  if (reach_ == Reach::Host) {  // what this rank does not use may lie where it does not reach
    if (lies_on_gpu(collective.in.view())) collective.in = ConstBuffer();
    if (lies_on_gpu(collective.out.view())) collective.out = Buffer();
  }
  return by_plan ? do_plan(std::move(collective), std::move(plan))
                 : do_collective(std::move(collective));
}

Plan Communicator::plan_for(const Collective& collective) {
  const CommOp op = collective.call.op;
  Plan plan = (*plans_)[op](collective, rank_, size_);
  Checks(*this, op).check_plan(plan, collective);
  for (const PlanAction& action : plan.actions)
    if (action.kind == PlanAction::Kind::Send)
      count_message(action.peer,
                    static_cast<std::size_t>(action.from.count) * size_of(collective.call.dtype));
  stats_.steps += static_cast<std::int64_t>(plan.steps());
  return plan;
}

Work Communicator::all_reduce(Buffer inout, ReduceOp op) {
  const std::size_t bytes = inout.bytes();
  const Call call{CommOp::AllReduce, inout.count(), inout.dtype(), op};
  const ConstView in = inout.view();
  return start({.call = call, .in = in, .out = std::move(inout)}, bytes);
}

Work Communicator::reduce(ConstBuffer in, Buffer out, int root, ReduceOp op) {
  const Checks checks(*this, CommOp::Reduce);
  checks.check_rank("root", root);
  if (rank_ == root) {
    checks.check_equal({"in", in.view()}, {"out", out.view()});
    if (in.view().raw() != out.view().raw())
      checks.check_disjoint({"in", in.view()}, {"out", out.view()});
  }
  const std::size_t bytes = in.bytes();
  const Call call{CommOp::Reduce, in.count(), in.dtype(), op, root};
  return start({.call = call, .in = std::move(in), .out = std::move(out)}, bytes);
}

Work Communicator::reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op) {
  Checks(*this, CommOp::ReduceScatter).check_chunks({"in", in.view()}, {"out", out.view()});
  const std::size_t bytes = in.bytes();
  const Call call{CommOp::ReduceScatter, out.count(), out.dtype(), op};
  return start({.call = call, .in = std::move(in), .out = std::move(out)}, bytes);
}

Work Communicator::all_gather(ConstBuffer in, Buffer out) {
  Checks(*this, CommOp::AllGather).check_chunks({"out", out.view()}, {"in", in.view()});
  const std::size_t bytes = in.bytes();
  const Call call{CommOp::AllGather, in.count(), in.dtype()};
  return start({.call = call, .in = std::move(in), .out = std::move(out)}, bytes);
}

Work Communicator::gather(ConstBuffer in, Buffer out, int root) {
  const Checks checks(*this, CommOp::Gather);
  checks.check_rank("root", root);
  if (rank_ == root) checks.check_chunks({"out", out.view()}, {"in", in.view()});
  const std::size_t bytes = in.bytes();
  const Call call{.op = CommOp::Gather, .count = in.count(), .dtype = in.dtype(), .peer = root};
  return start({.call = call, .in = std::move(in), .out = std::move(out)}, bytes);
}

Work Communicator::scatter(ConstBuffer in, Buffer out, int root) {
  const Checks checks(*this, CommOp::Scatter);
  checks.check_rank("root", root);
  if (rank_ == root) checks.check_chunks({"in", in.view()}, {"out", out.view()});
  const std::size_t bytes = rank_ == root ? in.bytes() : out.bytes();
  const Call call{.op = CommOp::Scatter, .count = out.count(), .dtype = out.dtype(), .peer = root};
  return start({.call = call, .in = std::move(in), .out = std::move(out)}, bytes);
}

Work Communicator::broadcast(Buffer inout, int root) {
  Checks(*this, CommOp::Broadcast).check_rank("root", root);
  const std::size_t bytes = inout.bytes();
  const Call call{
      .op = CommOp::Broadcast, .count = inout.count(), .dtype = inout.dtype(), .peer = root};
  const ConstView in = inout.view();
  return start({.call = call, .in = in, .out = std::move(inout)}, bytes);
}

Work Communicator::all_to_all(ConstBuffer in, Buffer out) {
  const Checks checks(*this, CommOp::AllToAll);
  checks.check_equal({"in", in.view()}, {"out", out.view()});
  if (in.count() % size_ != 0)
    checks.fail("count {} is not divisible by size {}", in.count(), size_);
  checks.check_disjoint({"in", in.view()}, {"out", out.view()});
  const std::size_t bytes = in.bytes();
  const Call call{.op = CommOp::AllToAll, .count = in.count() / size_, .dtype = in.dtype()};
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(size_), call.count);
  return start({call, std::move(in), std::move(out), counts, counts}, bytes);
}

Work Communicator::all_to_all_v(ConstBuffer in, std::span<const std::int64_t> send_counts,
                                Buffer out, std::span<const std::int64_t> recv_counts) {
  const Checks checks(*this, CommOp::AllToAllV);
  checks.check_dtypes({"in", in.view()}, {"out", out.view()});
  checks.check_counts("send_counts", send_counts, {"in", in.view()});
  checks.check_counts("recv_counts", recv_counts, {"out", out.view()});
  checks.check_disjoint({"in", in.view()}, {"out", out.view()});
  const std::size_t bytes = in.bytes();
  const Call call{.op = CommOp::AllToAllV,
                  .dtype = in.count() > 0 ? in.dtype() : out.dtype()};  // one may be empty
  return start({call,
                std::move(in),
                std::move(out),
                {send_counts.begin(), send_counts.end()},
                {recv_counts.begin(), recv_counts.end()}},
               bytes);
}

std::size_t wait_any(std::span<Work> works) {
  if (works.empty()) fail("wait_any: no operations were given");
  std::vector<PendingOperation*> operations;
  for (std::size_t i = 0; i < works.size(); ++i) {
    if (!works[i].pending()) return i;
    operations.push_back(works[i].pending());
  }
  const std::size_t index = PendingOperation::wait_any_of(operations);
  works[index].wait();
  return index;
}

void Communicator::barrier() { start({.call = {.op = CommOp::Barrier}}, 0).wait(); }

std::unique_ptr<Communicator> Communicator::split(int color, int key, std::string name) {
  count_call(CommOp::Split, 0);
  std::unique_ptr<Communicator> part = adopt(do_split(color, key, std::move(name)));
  if (part && plans_) part->plans_ = std::make_unique<PlanTable>(*plans_);
  return part;
}

std::unique_ptr<Communicator> Communicator::adopt(std::unique_ptr<Communicator> part) const {
  if (part) part->family_ = family_;
  return part;
}

}  // namespace aisc
