#include "common/comm/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>

#include "common/comm/backend/wire_queue.h"
#include "common/core/error.h"

namespace aisc {
namespace {

using Kind = PlanAction::Kind;

// One side of a message of a rank's current step.
struct Side {
  bool is_send = false;
  int peer = -1;
  std::int64_t bytes = 0;
  Passage passage{};
};

struct SimulatedRank {
  Plan plan;
  std::size_t step = 0;
  double now = 0;
  RankLinks links{};
  std::vector<Side> sides;  // of the step
  std::size_t open = 0;     // of these, without their other side
  bool over() const { return step == plan.steps(); }
};

class Simulation {
 public:
  Simulation(const Network& network, int ranks, std::size_t element_bytes,
             const std::function<void(const SimulatedMessage&)>& observer, SimulationState& state)
      : network_(network),
        state_(state),
        element_bytes_(static_cast<std::int64_t>(element_bytes)),
        observer_(observer),
        ranks_(static_cast<std::size_t>(ranks)) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r].now = state.seconds[r];
      ranks_[r].links = state.links[r];
    }
  }

  Simulated run(const PlanMaker& maker, const Collective& call) {
    for (int r = 0; r < size(); ++r) at(r).plan = maker(call, r, size());
    for (int r = 0; r < size(); ++r) post_step(r);
    // While a rank can go on without a shared wire, it does. When none can, no message will ever be
    // sent before the earliest one that waits, which may therefore pass.
    while (!ready_.empty() || deliver_earliest()) {
      if (ready_.empty()) continue;
      const int r = ready_.back();
      ready_.pop_back();
      finish_step(r);
      ++at(r).step;
      post_step(r);
    }
    fail_if_not_over();
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      state_.seconds[r] = ranks_[r].now;
      state_.links[r] = ranks_[r].links;
      result_.seconds = std::max(result_.seconds, ranks_[r].now);
    }
    result_.end_seconds = state_.seconds;
    return std::move(result_);
  }

 private:
  // Where a side is: whose it is, and which of its step.
  struct SideRef {
    int rank;
    std::size_t index;
  };
  struct Unmatched {
    std::deque<SideRef> sends, recvs;  // one of them is empty
  };

  int size() const { return static_cast<int>(ranks_.size()); }
  SimulatedRank& at(int r) { return ranks_[static_cast<std::size_t>(r)]; }
  Side& side(const SideRef& ref) { return at(ref.rank).sides[ref.index]; }

  // A rank whose plan is over is left alone.
  void post_step(int r) {
    SimulatedRank& rank = at(r);
    if (rank.over()) return;
    rank.sides.clear();
    for (const PlanAction& action : rank.plan.step(rank.step)) {
      const bool is_send = action.kind == Kind::Send;
      if (!is_send && action.kind != Kind::Recv) continue;
      if (action.peer < 0 || action.peer >= size())
        fail(fmt::format("simulate: {}, rank {}, step {}: rank {}, there are {}", rank.plan.name, r,
                         rank.step, action.peer, size()));
      rank.sides.push_back({.is_send = is_send,
                            .peer = action.peer,
                            .bytes = element_bytes_ * (is_send ? action.from : action.to).count});
    }
    rank.open = rank.sides.size();
    if (rank.open == 0) ready_.push_back(r);
    for (std::size_t i = 0; i < rank.sides.size(); ++i)
      rank.sides[i].is_send ? send(r, i) : match(r, i);
  }

  void send(int r, std::size_t index) {
    SimulatedRank& rank = at(r);
    Side& s = rank.sides[index];
    ++result_.messages;
    result_.bytes += s.bytes;
    if (network_.is_shared(r, s.peer)) {
      wire_messages_.push(rank.now, r, issue_++, 0, {r, index});
      return;
    }
    s.passage = rank.links.send(rank.now, s.bytes, network_.link);
    match(r, index);
  }

  // Lets the earliest message that waits for a shared wire pass; false if there is none.
  bool deliver_earliest() {
    if (wire_messages_.empty()) return false;
    const SideRef earliest = wire_messages_.pop();
    Side& s = side(earliest);
    s.passage = state_.wires.pass(earliest.rank, s.peer, s.bytes, at(earliest.rank).now);
    match(earliest.rank, earliest.index);
    return true;
  }

  // The two sides of a message are matched first in first out per pair of ranks.
  void match(int r, std::size_t index) {
    const Side& mine = at(r).sides[index];
    const auto [from, to] = mine.is_send ? std::pair(r, mine.peer) : std::pair(mine.peer, r);
    const auto key = static_cast<std::uint64_t>(from) * static_cast<std::uint64_t>(size()) +
                     static_cast<std::uint64_t>(to);
    Unmatched& unmatched = unmatched_[key];
    std::deque<SideRef>& others = mine.is_send ? unmatched.recvs : unmatched.sends;
    if (others.empty()) {
      (mine.is_send ? unmatched.sends : unmatched.recvs).push_back({r, index});
      return;
    }
    const SideRef other = others.front(), me{r, index};
    others.pop_front();
    if (unmatched.sends.empty() && unmatched.recvs.empty()) unmatched_.erase(key);
    const Side& send = side(mine.is_send ? me : other);
    Side& recv = side(mine.is_send ? other : me);
    if (send.bytes != recv.bytes)
      fail(fmt::format("simulate: {}, step {} of rank {}: expects {} bytes, rank {} sends {}",
                       at(to).plan.name, at(to).step, to, recv.bytes, from, send.bytes));
    recv.passage = send.passage;
    for (const int rank : {from, to})
      if (--at(rank).open == 0) ready_.push_back(rank);
  }

  void finish_step(int r) {
    SimulatedRank& rank = at(r);
    double end = rank.now;
    // All messages of the step are under way together; links take one after the other (RankLinks).
    // The sums come behind them, each after the one before.
    for (const Side& s : rank.sides) {
      const double over = s.is_send ? s.passage.done_seconds() : rank.links.receive(s.passage);
      end = std::max(end, over);
      if (!s.is_send && observer_) observer_({s.peer, r, s.bytes, s.passage.sent_seconds, over});
    }
    rank.now = end;
    for (const PlanAction& action : rank.plan.step(rank.step))
      if (action.kind == Kind::Reduce)
        rank.now = network_.reduced_seconds(rank.now, element_bytes_ * action.to.count);
  }

  void fail_if_not_over() {
    constexpr int kNamed = 8;
    std::string waiting;
    int count = 0;
    for (int r = 0; r < size(); ++r)
      if (!at(r).over() && ++count <= kNamed)
        waiting += fmt::format("{} {} (step {})", count == 1 ? "" : ",", r, at(r).step);
    if (count > kNamed) waiting += fmt::format(" and {} more", count - kNamed);
    if (count > 0)
      fail(fmt::format("simulate: {}: wait for ever: ranks{}", at(0).plan.name, waiting));
  }

  const Network& network_;
  SimulationState& state_;
  const std::int64_t element_bytes_;
  const std::function<void(const SimulatedMessage&)>& observer_;
  std::vector<SimulatedRank> ranks_;
  std::vector<int> ready_;  // whose step's messages are all matched
  std::unordered_map<std::uint64_t, Unmatched> unmatched_;
  WireQueue<SideRef> wire_messages_;
  std::uint64_t issue_ = 0;
  Simulated result_;
};

}  // namespace

SimulationState::SimulationState(const Network& network, int ranks)
    : seconds(static_cast<std::size_t>(ranks)),
      links(static_cast<std::size_t>(ranks)),
      wires(network, ranks) {}

Simulated simulate(const PlanMaker& maker, const Collective& call, int ranks,
                   const Network& network,
                   const std::function<void(const SimulatedMessage&)>& message,
                   SimulationState* state) {
  if (ranks < 1) fail(fmt::format("simulate: {} ranks, at least 1 expected", ranks));
  network.check(ranks);
  std::optional<SimulationState> fresh;
  if (!state) state = &fresh.emplace(network, ranks);
  return Simulation(network, ranks, size_of(call.call.dtype), message, *state).run(maker, call);
}

Collective call_of(CommOp op, int ranks, std::int64_t bytes) {
  constexpr std::int64_t kElement = 4;
  const bool is_whole = op == CommOp::AllReduce || op == CommOp::Reduce || op == CommOp::Broadcast;
  const std::int64_t parts = is_whole || op == CommOp::Barrier ? 1 : ranks;
  if (bytes < 0 || bytes % (kElement * parts) != 0)
    fail(fmt::format("call_of: {} of {} bytes, a multiple of {} expected", name_of(op), bytes,
                     kElement * parts));
  const bool has_root = op == CommOp::Reduce || op == CommOp::Broadcast || op == CommOp::Gather ||
                        op == CommOp::Scatter;
  Collective c{.call = {.op = op,
                        .count = bytes / kElement / parts,
                        .dtype = DType::F32,
                        .peer = has_root ? 0 : -1}};
  if (op == CommOp::AllToAll)
    c.send_counts = c.recv_counts =
        std::vector<std::int64_t>(static_cast<std::size_t>(ranks), c.call.count);
  return c;
}

}  // namespace aisc
