#include "common/comm/mpi/mpi_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <string_view>
#include <tuple>
#include <utility>

#include "common/comm/mpi/choose_plan.h"
#include "common/comm/mpi/operation.h"
#include "common/core/error.h"

namespace aisc::mpi {
namespace {

// What a caller holds.
class PendingCall final : public PendingOperation {
 public:
  PendingCall(std::shared_ptr<World> world, std::shared_ptr<Operation> what)
      : world_(std::move(world)), what_(std::move(what)) {
    Trace* trace = world_->trace;
    if (!trace || !trace->is_recording() || what_->call.op == CommOp::Split) return;
    world_->is_traced = true;
    issued_seconds_ = world_->clock->now();
    const Members& members = what_->members();
    const std::string lane = members.name + (what_->channel == Channel::Direct ? " messages" : "");
    traced_ = trace->begin_call(
        lane, to_string(what_->call), issued_seconds_,
        ranks_of(what_->call, world_->rank(), members.size(),
                 [&](int rank) { return members.ranks[static_cast<std::size_t>(rank)]; }));
  }

  void wait() override {
    Operation* const one[] = {what_.get()};
    try {
      world_->engine.block(one);
    } catch (...) {
      world_->watchdog.wait_for_quiet(what_->shared_members());
      what_->release();
      throw;
    }
    what_->release();
    add_to_trace();
  }
  // A rank that an exception carries away does not wait for peers, which may wait for it.
  void abandon() noexcept override {
    try {
      if (std::uncaught_exceptions() > 0 && !what_->over())
        world_->watchdog.fail(
            fmt::format("{}: rank {} left by an exception while its {} was under way",
                        what_->members().name, world_->rank(), to_string(what_->call)));
      wait();
    } catch (...) {
    }
  }
  bool done() override { return world_->engine.ask(*what_); }
  std::size_t wait_any(std::span<PendingOperation* const> operations) override {
    std::vector<Operation*> all;
    for (PendingOperation* operation : operations) {
      const auto* mine = dynamic_cast<const PendingCall*>(operation);
      if (!mine || mine->world_ != world_)
        fail("wait_any: the operations belong to different ranks");
      all.push_back(mine->what_.get());
    }
    return world_->engine.block(all);
  }

 private:
  void add_to_trace() {
    Trace* trace = world_->trace;
    if (!trace || traced_ == 0) return;
    const Time ended = what_->end_time();
    const Clock& clock = *world_->clock;
    const double end = ended == Time() ? clock.now() : clock.seconds_at(ended);
    trace->end_call(traced_, std::min(issued_seconds_, end), end);
  }

  const std::shared_ptr<World> world_;
  const std::shared_ptr<Operation> what_;
  double issued_seconds_ = 0;
  std::int64_t traced_ = 0;  // its number in the trace; 0: it is not there
};

int rank_in(const Members& members, int world_rank) {
  const auto at = std::find(members.ranks.begin(), members.ranks.end(), world_rank);
  return static_cast<int>(at - members.ranks.begin());
}

// What ranks tell each other to split.
struct SplitPart {
  int color, key;
  std::int64_t free_id;  // an identity that this rank may take for a new communicator
  char name[48] = {};    // cut if longer
};

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(std::shared_ptr<World> world, std::shared_ptr<Members> members)
      : Communicator(rank_in(*members, world->rank()), members->size(), members->name),
        world_(std::move(world)),
        members_(std::move(members)) {}

 private:
  Work do_exchange(const Call& call, std::span<const Transfer> transfers) override {
    const auto exchange = std::make_shared<Exchange>(world_, members_, call, messages_, transfers);
    {
      const Engine::Entry entry(world_->engine);
      world_->watchdog.begin(call, messages_++, name());
      exchange->start();
    }
    return work(exchange);
  }

  Work do_collective(Collective collective) override {
    std::shared_ptr<const Plan> plan = plan_for(collective);
    return run(std::move(collective), std::move(plan));
  }

  Work do_plan(Collective collective, Plan plan) override {
    return run(std::move(collective), std::make_shared<const Plan>(std::move(plan)));
  }

  void do_check() override {
    if (world_->watchdog.has_failed()) fail(world_->watchdog.failure());
  }

  // Programs repeat themselves: the last plans are kept.
  std::shared_ptr<const Plan> plan_for(const Collective& collective) {
    constexpr std::size_t kKept = 16;
    const bool is_kept = collective.call.op != CommOp::AllToAllV;  // its call has not all counts
    if (is_kept)
      for (const auto& [call, plan] : kept_)
        if (call == collective.call) return plan;
    auto plan = std::make_shared<const Plan>(choose_plan(collective, rank(), size()));
    if (!is_kept) return plan;
    if (kept_.size() == kKept) kept_.pop_back();
    kept_.emplace_front(collective.call, plan);
    return plan;
  }

  Work run(Collective collective, std::shared_ptr<const Plan> plan) {
    const Call call = collective.call;
    const auto plan_run = std::make_shared<PlanRun>(world_, members_, std::move(collective),
                                                    std::move(plan), sequence_);
    {
      const Engine::Entry entry(world_->engine);
      world_->watchdog.begin(call, sequence_++, name());
      PlanRun::enter(plan_run);
    }
    return work(plan_run);
  }

  // All ranks tell all what they want; each then knows its part, in which the ranks have agreed on
  // the largest of the identities that they have free.
  std::unique_ptr<Communicator> do_split(int color, int key, std::string name) override {
    const auto n = static_cast<std::size_t>(size());
    std::vector<SplitPart> parts(n);
    SplitPart mine{color, key, world_->free_id()};
    name.copy(mine.name, sizeof mine.name - 1);
    CpuDevice host;
    const auto bytes = [&](void* data, std::size_t count) {
      return View(data, {static_cast<std::int64_t>(count * sizeof(SplitPart))}, DType::U8, host);
    };
    Collective collective{
        .call = {.op = CommOp::Split}, .in = bytes(&mine, 1), .out = bytes(parts.data(), n)};
    Collective gather{.call = {.op = CommOp::AllGather, .count = sizeof(SplitPart)}};
    do_plan(std::move(collective), choose_plan(gather, rank(), size())).wait();

    for (std::size_t r = 1; r < n; ++r)
      if (const std::string_view a = parts[0].name, b = parts[r].name; a != b) {
        world_->watchdog.fail(
            fmt::format("{}: rank {} called split(\"{}\") where rank {} called "
                        "split(\"{}\")",
                        this->name(), members_->ranks[r], b, members_->ranks[0], a));
        fail(world_->watchdog.failure());
      }
    std::int64_t id = 0;
    std::vector<std::tuple<int, int>> members;  // key, rank
    for (std::size_t r = 0; r < n; ++r) {
      id = std::max(id, parts[r].free_id);
      if (parts[r].color == color) members.emplace_back(parts[r].key, static_cast<int>(r));
    }
    {
      const Engine::Entry entry(world_->engine);
      world_->session.take_id(id);
    }
    if (color < 0) return nullptr;
    std::sort(members.begin(), members.end());
    std::vector<int> ranks;
    for (const auto& [its_key, r] : members)
      ranks.push_back(members_->ranks[static_cast<std::size_t>(r)]);
    return make_communicator(world_, std::make_shared<Members>(std::move(name), ranks, id));
  }

  Work work(std::shared_ptr<Operation> what) {
    return Work(std::make_unique<PendingCall>(world_, std::move(what)));
  }

  const std::shared_ptr<World> world_;
  const std::shared_ptr<Members> members_;
  std::uint64_t sequence_ = 0;  // collectives called
  std::uint64_t messages_ = 0;  // exchanges called
  std::deque<std::pair<Call, std::shared_ptr<const Plan>>> kept_;
};

}  // namespace

std::unique_ptr<Communicator> make_communicator(std::shared_ptr<World> world,
                                                std::shared_ptr<Members> members) {
  return std::make_unique<MpiCommunicator>(std::move(world), std::move(members));
}

}  // namespace aisc::mpi
