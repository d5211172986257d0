#include "common/model/replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/comm/simulate.h"
#include "common/core/error.h"
#include "common/model/timed.h"

namespace aisc {
namespace {

constexpr int kMostReplicas = 4096;  // all of their plans exist at once, of a ring 2 p steps each

// When each replica is, seen from rank 0, and what is under way between them.
struct Replicas {
  Replicas(int size, const Network& network, const Rank& rank)
      : clock(rank.clock),
        trace(rank.trace),
        state(network, size),
        ahead(static_cast<std::size_t>(size)) {}

  Clock& clock;
  Trace& trace;
  SimulationState state;      // of the collectives so far
  std::vector<double> ahead;  // of rank 0's clock: seconds of each rank's
};

// All ranks wait for it where rank 0 does.
class ReplicasCall final : public TimedOperation {
 public:
  ReplicasCall(std::shared_ptr<Replicas> replicas, std::string name, Collective collective,
               Tensor scratch, double begin)
      : TimedOperation(replicas->clock, replicas->state.seconds[0]),
        replicas_(std::move(replicas)),
        name_(std::move(name)),
        collective_(std::move(collective)),
        scratch_(std::move(scratch)),
        begin_(begin),
        ends_(replicas_->state.seconds) {}

 private:
  void finish(double asked) override {
    const double end = std::max(asked, ends_[0]);
    for (std::size_t r = 0; r < ends_.size(); ++r)
      replicas_->ahead[r] = std::max(asked + replicas_->ahead[r], ends_[r]) - end;
    if (replicas_->trace.is_recording())
      replicas_->trace.add(name_, to_string(collective_.call), begin_, ends_[0]);
    collective_ = {};
    scratch_ = {};
  }

  const std::shared_ptr<Replicas> replicas_;
  const std::string name_;
  Collective collective_;
  Tensor scratch_;
  const double begin_;
  const std::vector<double> ends_;
};

class ReplicasCommunicator final : public Communicator {
 public:
  ReplicasCommunicator(int size, const Network& network, const Rank& rank, PlanTable table,
                       std::string name)
      : Communicator(0, size, std::move(name)),
        network_(network),
        replicas_(std::make_shared<Replicas>(size, network, rank)) {
    use_plans(std::move(table));
  }

 private:
  Work do_plan(Collective c, Plan plan) override {
    if (!is_followed(c)) refuse(c.call);
    Replicas& all = *replicas_;
    const double now = all.clock.now();
    // Each rank begins where the one that runs begins, plus what it has been ahead by; the plan of
    // all of them is then followed step by step.
    for (std::size_t r = 0; r < all.ahead.size(); ++r)
      all.state.seconds[r] = std::max(now + all.ahead[r], all.state.seconds[r]);
    const double begin = all.state.seconds[0];
    simulate((*plans())[c.call.op], c, size(), network_, {}, &all.state);
    const ConstView& data = c.out.view();
    if (c.call.op == CommOp::AllReduce && c.call.reduce == ReduceOp::Sum && data &&
        data.device().kind() != DeviceKind::Meta)
      multiply(c.out.view());
    Tensor scratch;
    if (plan.scratch_count > 0)
      scratch = Tensor({plan.scratch_count}, c.call.dtype, data.device(), Purpose::Communication);
    return Work(
        std::make_unique<ReplicasCall>(replicas_, name(), std::move(c), std::move(scratch), begin));
  }

  static bool is_followed(const Collective& c) {
    const ReduceOp op = c.call.reduce;
    switch (c.call.op) {
      case CommOp::Barrier:
        return true;
      case CommOp::AllReduce:  // sums of integers are counts, of ranks that need not be alike
        return op == ReduceOp::Sum ? is_floating(c.call.dtype) : op != ReduceOp::Product;
      case CommOp::AllGather:
      case CommOp::ReduceScatter:  // of numbers the others' would be needed
        return c.out.view().device().kind() == DeviceKind::Meta;
      case CommOp::AllToAll:
      case CommOp::AllToAllV:
        return is_even(c);
      default:
        return false;
    }
  }

  static bool is_even(const Collective& c) {
    const std::int64_t count = c.send_counts[0];
    const auto is_count = [count](std::int64_t n) { return n == count; };
    return std::ranges::all_of(c.send_counts, is_count) &&
           std::ranges::all_of(c.recv_counts, is_count);
  }

  void multiply(const View& sum) const {
    dispatch(sum.dtype(), [&](auto type) {
      using T = decltype(type);
      for (T& value : sum.values<T>()) value = static_cast<T>(static_cast<double>(value) * size());
    });
  }

  Work do_exchange(const Call& call, std::span<const Transfer>) override { refuse(call); }
  Work do_collective(Collective c) override { refuse(c.call); }
  std::unique_ptr<Communicator> do_split(int, int, std::string) override {
    refuse({.op = CommOp::Split});
  }
  bool runs_only_plans() const override { return true; }
  bool leaves_node(int to) const override { return network_.crosses_nodes(0, to); }

  [[noreturn]] void refuse(const Call& call) const {
    fail(where(call.op) + "one rank runs in place of " + std::to_string(size()) +
         ", which may only add up what each has, gather shards that hold no numbers, send each "
         "other equally much, and wait for each other");
  }

  const Network& network_;
  const std::shared_ptr<Replicas> replicas_;
};

}  // namespace

std::unique_ptr<Communicator> make_replicas(int size, const Network& network, const Rank& rank,
                                            PlanTable plans, std::string name) {
  if (size > kMostReplicas)
    fail(fmt::format("one rank in place of {}: expected at most {}, whose plans fit into memory",
                     size, kMostReplicas));
  return std::make_unique<ReplicasCommunicator>(size, network, rank, std::move(plans),
                                                std::move(name));
}

}  // namespace aisc
