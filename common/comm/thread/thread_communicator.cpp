#include "common/comm/thread/thread_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include "common/comm/plan.h"
#include "common/comm/thread/operations.h"
#include "common/core/error.h"

namespace aisc::thread {
namespace {

// A rank's own hold on what its communicator shares, so that ranks do not count on one counter.
using Hold = std::shared_ptr<const std::shared_ptr<CommunicatorState>>;

// A collective that the ranks do together, as one of them sees it.
class Meeting final : public Waitable {
 public:
  Meeting(Hold hold, std::uint64_t k, std::uint64_t sequence, Collective collective)
      : Waitable(collective.call, {(*hold)->name, sequence}),
        hold_(std::move(hold)),
        shared_(hold_->get()),
        k_(k),
        collective_(std::move(collective)) {}

  bool over() const override { return shared_->rendezvous.is_over(k_); }
  std::vector<int> missing() const override { return shared_->rendezvous.missing(k_); }
  void withdraw() override { shared_->rendezvous.withdraw(k_); }
  void release() override { collective_ = {}; }
  std::optional<Time> end_time() const override { return shared_->rendezvous.end_time(k_); }

 private:
  const Hold hold_;
  CommunicatorState* const shared_;
  const std::uint64_t k_;
  Collective collective_;  // shares of the tensors
};

// What a caller holds.
class PendingCall final : public PendingOperation {
 public:
  PendingCall(Hold hold, int world_rank, std::shared_ptr<Waitable> what)
      : hold_(std::move(hold)),
        world_((*hold_)->world.get()),
        world_rank_(world_rank),
        what_(std::move(what)) {
    Trace* trace = world_->trace(world_rank_);
    if (!trace || !trace->is_recording() || what_->call.op == CommOp::Split) return;
    world_->set_traced();
    issued_seconds_ = world_->clock(world_rank_).now();
    const std::string lane =
        *what_->place.communicator + (is_message(what_->call) ? " messages" : "");
    traced_ = trace->begin_call(lane, to_string(what_->call), issued_seconds_, ranks());
  }

  void wait() override {
    const Waitable* const one[] = {what_.get()};
    try {
      world_->block(world_rank_, one);
    } catch (...) {
      what_->withdraw();
      what_->release();
      throw;
    }
    what_->release();
    settle();
  }
  // A rank that an exception carries away does not wait for peers, which may wait for it.
  void abandon() noexcept override {
    try {
      if (std::uncaught_exceptions() > 0 && !what_->over())
        world_->fail(fmt::format("{}: rank {} left by an exception while its {} was under way",
                                 *what_->place.communicator, world_rank_, to_string(what_->call)));
      wait();
    } catch (...) {
    }
  }
  bool done() override {
    if (world_->is_virtual()) return world_->is_over_by_now(world_rank_, *what_);
    if (!what_->over()) world_->run_job(world_rank_);
    return what_->over() || world_->has_failed();
  }
  std::size_t wait_any(std::span<PendingOperation* const> operations) override {
    std::vector<const Waitable*> all;
    for (PendingOperation* operation : operations) {
      const auto* mine = dynamic_cast<const PendingCall*>(operation);
      if (!mine || mine->world_ != world_ || mine->world_rank_ != world_rank_)
        fail("wait_any: the operations belong to different ranks");
      all.push_back(mine->what_.get());
    }
    return world_->block(world_rank_, all);
  }

 private:
  void settle() {
    what_->settle();
    if (world_->is_virtual()) world_->clock(world_rank_).advance_to(what_->end_seconds());
    Trace* trace = world_->trace(world_rank_);
    if (!trace || traced_ == 0) return;
    double begin = issued_seconds_, end = world_->clock(world_rank_).now();
    if (world_->is_virtual()) {
      begin = what_->begin_seconds();
      end = what_->end_seconds();
    } else if (const auto time = what_->end_time()) {
      end = world_->clock(world_rank_).seconds_at(*time);
    }
    trace->end_call(traced_, std::min(begin, end), end);  // it may be over before it was timed
  }
  std::vector<int> ranks() const {
    const CommunicatorState& state = **hold_;
    return ranks_of(what_->call, world_rank_, state.size(),
                    [&](int rank) { return state.world_rank(rank); });
  }

  const Hold hold_;
  World* const world_;
  const int world_rank_;
  const std::shared_ptr<Waitable> what_;
  double issued_seconds_ = 0;
  std::int64_t traced_ = 0;  // its number in the trace; 0: it is not there
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<CommunicatorState> shared, int rank)
      : Communicator(rank, shared->size(), *shared->name),
        hold_(std::make_shared<const std::shared_ptr<CommunicatorState>>(shared)),
        shared_(std::move(shared)),
        world_(*shared_->world),
        world_rank_(shared_->world_rank(rank)) {}

 private:
  bool runs_only_plans() const override { return world_.is_virtual(); }
  bool leaves_node(int to) const override {
    const std::optional<Network>& network = world_.options().network;
    return network && network->crosses_nodes(world_rank_, shared_->world_rank(to));
  }

  Work do_exchange(const Call& call, std::span<const Transfer> transfers) override {
    begin(call, messages_);
    const auto exchange =
        std::make_shared<Exchange>(shared_, rank(), call, messages_++, transfers, links_);
    exchange->start(now());
    return work(exchange);
  }

  Work do_collective(Collective collective) override {
    begin(collective.call, sequence_);
    keep_order(last_plan_);
    std::unique_ptr<PostDetails> details;
    if (!collective.send_counts.empty()) {
      details = std::make_unique<PostDetails>();
      details->send_counts = collective.send_counts;
      details->recv_counts = collective.recv_counts;
    }
    return work(meet(std::move(collective), std::move(details)));
  }

  Work do_plan(Collective collective, Plan plan) override {
    begin(collective.call, sequence_);
    keep_order(last_meeting_);
    const auto run = std::make_shared<PlanRun>(shared_, rank(), std::move(collective),
                                               std::move(plan), sequence_++, lane_, now());
    PlanRun::enter(run);
    last_plan_ = run;
    return work(run);
  }

  void do_check() override { world_.throw_failure(); }

  std::unique_ptr<Communicator> do_split(int color, int key, std::string name) override {
    const Call call{.op = CommOp::Split};
    begin(call, sequence_);
    keep_order(last_plan_);
    std::shared_ptr<CommunicatorState> part;
    int part_rank = 0;
    auto details = std::make_unique<PostDetails>();
    details->color = color;
    details->key = key;
    details->name = world_.keep(name);
    details->part = &part;
    details->part_rank = &part_rank;
    double seconds = now();
    details->seconds = &seconds;
    PendingCall(hold_, world_rank_, meet({.call = call}, std::move(details))).wait();
    if (world_.is_virtual()) world_.clock(world_rank_).advance_to(seconds);
    return part ? make_communicator(std::move(part), part_rank) : nullptr;
  }

  void begin(const Call& call, std::uint64_t sequence) {
    world_.throw_failure();
    world_.set_last_call(world_rank_, call, {shared_->name, sequence});
  }

  // Collectives run in the order of their calls: those that are plans one after the other on the
  // lane, the others one after the other as they meet. Where they mix, the caller waits.
  void keep_order(std::weak_ptr<Waitable>& others) {
    if (const std::shared_ptr<Waitable> last = others.lock()) block(*last);
    others.reset();
  }
  void block(const Waitable& what) {
    const Waitable* const one[] = {&what};
    world_.block(world_rank_, one);
  }

  std::shared_ptr<Waitable> meet(Collective collective, std::unique_ptr<PostDetails> details) {
    const std::uint64_t k = meetings_++;
    Post post{collective.call, bytes_of(collective.in.view()), bytes_of(collective.out.view()),
              std::move(details)};
    if (k >= shared_->rendezvous.ring() &&
        !shared_->rendezvous.is_over(k - shared_->rendezvous.ring()))
      block(Meeting(hold_, k - shared_->rendezvous.ring(), sequence_, {.call = collective.call}));
    const auto meeting = std::make_shared<Meeting>(hold_, k, sequence_++, std::move(collective));
    shared_->rendezvous.post(rank(), k, std::move(post));
    last_meeting_ = meeting;
    return meeting;
  }

  Work work(std::shared_ptr<Waitable> what) {
    return Work(std::make_unique<PendingCall>(hold_, world_rank_, std::move(what)));
  }
  double now() const { return world_.is_virtual() ? world_.clock(world_rank_).now() : 0; }

  const Hold hold_;
  const std::shared_ptr<CommunicatorState> shared_;
  World& world_;
  const int world_rank_;
  std::uint64_t sequence_ = 0;  // collectives called
  std::uint64_t meetings_ = 0;  // of these, by rendezvous
  std::uint64_t messages_ = 0;  // exchanges called
  std::weak_ptr<Waitable> last_plan_, last_meeting_;
  const std::shared_ptr<RankLinks> links_ = std::make_shared<RankLinks>();
  const std::shared_ptr<Lane> lane_ = std::make_shared<Lane>();
};

}  // namespace

std::unique_ptr<Communicator> make_communicator(std::shared_ptr<CommunicatorState> shared,
                                                int rank) {
  return std::make_unique<ThreadCommunicator>(std::move(shared), rank);
}

std::shared_ptr<CommunicatorState> make_world_state(const WorldOptions& options,
                                                    const std::string& name) {
  std::vector<int> ranks(static_cast<std::size_t>(options.ranks));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_shared<CommunicatorState>(std::make_shared<World>(options), name,
                                             std::move(ranks));
}

}  // namespace aisc::thread
