#include "08_moe/more/one_of_experts.h"

#include <algorithm>
#include <utility>

#include "common/comm/plan.h"
#include "common/core/error.h"
#include "common/model/timed.h"

namespace aisc {

double all_to_all_seconds(AllToAll kind, const Machine& machine, int ranks, double bytes_to_each) {
  if (ranks == 1) return 0;
  const bool in_node = ranks <= machine.ranks_per_node;
  const Link& link = in_node ? machine.node_link : machine.card_link;
  const double sharers =
      in_node ? 1
              : std::max(1.0, static_cast<double>(machine.ranks_per_node) / machine.cards_per_node);
  const double message = bytes_to_each * link.seconds_per_byte * sharers;
  return kind == AllToAll::AtOnce ? link.latency_seconds + (ranks - 1) * message
                                  : (ranks - 1) * (link.latency_seconds + message);
}

// What a call holds is given back when it is over, as by ranks that run.
class OneOfExperts::Exchange final : public TimedOperation {
 public:
  Exchange(OneOfExperts& ranks, Collective c, double end)
      : TimedOperation(ranks.clock_, end), ranks_(ranks), c_(std::move(c)), end_(end) {}

 private:
  void finish(double asked) override {
    ranks_.waiting_ += std::max(0.0, end_ - asked);
    c_ = {};
  }

  OneOfExperts& ranks_;
  Collective c_;
  const double end_;
};

OneOfExperts::OneOfExperts(AllToAll kind, const Machine& machine, int ranks, const Rank& rank)
    : Communicator(0, ranks, "experts"), kind_(kind), machine_(machine), clock_(rank.clock) {
  use_plans(default_plans());
}

Work OneOfExperts::do_plan(Collective c, Plan /*plan*/) {
  const auto is_even = [](const std::vector<std::int64_t>& counts) {
    return std::ranges::all_of(counts, [&](std::int64_t n) { return n == counts[0]; });
  };
  const bool known = c.call.op == CommOp::AllToAll || c.call.op == CommOp::AllToAllV;
  if (!known || !is_even(c.send_counts) || c.send_counts != c.recv_counts) refuse(c.call);
  const double bytes =
      static_cast<double>(c.send_counts[0]) * static_cast<double>(size_of(c.call.dtype));
  free_ = std::max(clock_.now(), free_) + all_to_all_seconds(kind_, machine_, size(), bytes);
  return Work(std::make_unique<Exchange>(*this, std::move(c), free_));
}

void OneOfExperts::refuse(const Call& call) const {
  fail(where(call.op) + "one rank runs in place of " + std::to_string(size()) +
       ", which send each other equally many rows, and nothing else");
}

}  // namespace aisc
