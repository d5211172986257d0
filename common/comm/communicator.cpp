// What is the same on every backend: the checks of the arguments and the statistics.
#include "common/comm/communicator.h"

#include <fmt/format.h>

#include <numeric>
#include <utility>
#include <vector>

namespace aisc {
namespace {

constexpr std::array<const char*, kCommOpCount> kCommOpNames{
    "exchange",       "send",         "recv",   "all_reduce", "reduce",
    "reduce_scatter", "all_gather",   "gather", "scatter",    "broadcast",
    "all_to_all",     "all_to_all_v", "barrier"};

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

const char* name_of(CommOp op) { return kCommOpNames[static_cast<std::size_t>(op)]; }

ConstBuffer ConstBuffer::share() const {
  ConstBuffer other;
  other.view_ = view_;
  other.owner_ = owner_.share();
  return other;
}

Buffer Buffer::share() const {
  Buffer other;
  other.view_ = view_;
  other.owner_ = owner_.share();
  return other;
}

// One call and the checks of its arguments. Builds no text unless a check fails: a small all_reduce
// takes less time than a string.
class Communicator::Call {
 public:
  Call(const Communicator& comm, CommOp op) : comm_(comm), op_(op) {}

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

Communicator::Communicator(int rank, int size, std::string name)
    : rank_(rank), size_(size), name_(std::move(name)) {}

std::string Communicator::where(CommOp op) const {
  return fmt::format("{}, rank {}: {}: ", name_, rank_, name_of(op));
}

void Communicator::count(CommOp op, std::size_t payload_bytes) {
  CommStats::Row& row = stats_.rows[static_cast<std::size_t>(op)];
  ++row.calls;
  row.payload_bytes += static_cast<std::int64_t>(payload_bytes);
}

Work Communicator::exchange(std::span<const Transfer> transfers) {
  const Call call(*this, CommOp::Exchange);
  std::size_t bytes_in = 0, bytes_out = 0;
  for (const Transfer& t : transfers) {
    if (t.in.count() > 0) call.check_rank("to", t.to);
    if (t.out.count() > 0) call.check_rank("from", t.from);
    bytes_in += t.in.bytes();
    bytes_out += t.out.bytes();
  }
  count(CommOp::Exchange, bytes_in > 0 ? bytes_in : bytes_out);
  return do_exchange(CommOp::Exchange, transfers);
}

Work Communicator::send(ConstBuffer in, int to) {
  Call(*this, CommOp::Send).check_rank("to", to);
  count(CommOp::Send, in.bytes());
  const Transfer transfer{.in = std::move(in), .to = to, .out = {}, .from = 0};
  return do_exchange(CommOp::Send, {&transfer, 1});
}

Work Communicator::recv(Buffer out, int from) {
  Call(*this, CommOp::Recv).check_rank("from", from);
  count(CommOp::Recv, out.bytes());
  const Transfer transfer{.in = {}, .to = 0, .out = std::move(out), .from = from};
  return do_exchange(CommOp::Recv, {&transfer, 1});
}

Work Communicator::all_reduce(Buffer inout, ReduceOp op) {
  count(CommOp::AllReduce, inout.bytes());
  return do_all_reduce(std::move(inout), op);
}

Work Communicator::reduce(ConstBuffer in, Buffer out, int root, ReduceOp op) {
  const Call call(*this, CommOp::Reduce);
  call.check_rank("root", root);
  if (rank_ == root) {
    call.check_equal({"in", in.view()}, {"out", out.view()});
    if (in.view().raw() != out.view().raw())
      call.check_disjoint({"in", in.view()}, {"out", out.view()});
  }
  count(CommOp::Reduce, in.bytes());
  return do_reduce(std::move(in), std::move(out), root, op);
}

Work Communicator::reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op) {
  Call(*this, CommOp::ReduceScatter).check_chunks({"in", in.view()}, {"out", out.view()});
  count(CommOp::ReduceScatter, in.bytes());
  return do_reduce_scatter(std::move(in), std::move(out), op);
}

Work Communicator::all_gather(ConstBuffer in, Buffer out) {
  Call(*this, CommOp::AllGather).check_chunks({"out", out.view()}, {"in", in.view()});
  count(CommOp::AllGather, in.bytes());
  return do_all_gather(std::move(in), std::move(out));
}

Work Communicator::gather(ConstBuffer in, Buffer out, int root) {
  const Call call(*this, CommOp::Gather);
  call.check_rank("root", root);
  if (rank_ == root) call.check_chunks({"out", out.view()}, {"in", in.view()});
  count(CommOp::Gather, in.bytes());
  return do_gather(std::move(in), std::move(out), root);
}

Work Communicator::scatter(ConstBuffer in, Buffer out, int root) {
  const Call call(*this, CommOp::Scatter);
  call.check_rank("root", root);
  if (rank_ == root) call.check_chunks({"in", in.view()}, {"out", out.view()});
  count(CommOp::Scatter, rank_ == root ? in.bytes() : out.bytes());
  return do_scatter(std::move(in), std::move(out), root);
}

Work Communicator::broadcast(Buffer inout, int root) {
  Call(*this, CommOp::Broadcast).check_rank("root", root);
  count(CommOp::Broadcast, inout.bytes());
  return do_broadcast(std::move(inout), root);
}

Work Communicator::all_to_all(ConstBuffer in, Buffer out) {
  const Call call(*this, CommOp::AllToAll);
  call.check_equal({"in", in.view()}, {"out", out.view()});
  if (in.count() % size_ != 0) call.fail("count {} is not divisible by size {}", in.count(), size_);
  call.check_disjoint({"in", in.view()}, {"out", out.view()});
  count(CommOp::AllToAll, in.bytes());
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(size_), in.count() / size_);
  return do_all_to_all_v(CommOp::AllToAll, std::move(in), counts, std::move(out), counts);
}

Work Communicator::all_to_all_v(ConstBuffer in, std::span<const std::int64_t> send_counts,
                                Buffer out, std::span<const std::int64_t> recv_counts) {
  const Call call(*this, CommOp::AllToAllV);
  call.check_dtypes({"in", in.view()}, {"out", out.view()});
  call.check_counts("send_counts", send_counts, {"in", in.view()});
  call.check_counts("recv_counts", recv_counts, {"out", out.view()});
  call.check_disjoint({"in", in.view()}, {"out", out.view()});
  count(CommOp::AllToAllV, in.bytes());
  return do_all_to_all_v(CommOp::AllToAllV, std::move(in), send_counts, std::move(out),
                         recv_counts);
}

void Communicator::barrier() {
  count(CommOp::Barrier, 0);
  do_barrier();
}

std::unique_ptr<Communicator> Communicator::split(int color, int key, std::string name) {
  return do_split(color, key, std::move(name));
}

}  // namespace aisc
