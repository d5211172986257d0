#include "common/comm/mpi/operation.h"

#include <algorithm>
#include <utility>

#include "common/comm/backend/reduce.h"

namespace aisc::mpi {
namespace {

using Kind = PlanAction::Kind;

// In place the input lies in the output, or the other way round.
bool may_overlap(const Piece& a, const Piece& b) {
  if (a.count == 0 || b.count == 0) return false;
  if (a.where == b.where) return a.begin < b.begin + b.count && b.begin < a.begin + a.count;
  return a.where != Piece::Where::Scratch && b.where != Piece::Where::Scratch;
}

bool same(const Piece& a, const Piece& b) {
  return a.where == b.where && a.begin == b.begin && a.count == b.count;
}

}  // namespace

Operation::Operation(std::shared_ptr<World> world, std::shared_ptr<Members> members,
                     Channel its_channel, const Call& its_call, std::uint64_t its_sequence)
    : call(its_call),
      sequence(its_sequence),
      channel(its_channel),
      world_(std::move(world)),
      members_(std::move(members)) {}

void Operation::set_over() {
  if (world_->is_traced) end_time_ = std::chrono::steady_clock::now();
  over_.store(true, std::memory_order_release);
}

Exchange::Exchange(std::shared_ptr<World> world, std::shared_ptr<Members> members,
                   const Call& its_call, std::uint64_t its_sequence,
                   std::span<const Transfer> transfers)
    : Operation(std::move(world), std::move(members), Channel::Direct, its_call, its_sequence),
      shares_(transfers) {
  add_messages(transfers, [this](const Message& message) { messages_.push_back(message); });
}

void Exchange::start() {
  if (messages_.empty()) return set_over();
  world().engine.post(shared_from_this());
}

void Exchange::release() { shares_.release(); }

PlanRun::PlanRun(std::shared_ptr<World> world, std::shared_ptr<Members> members,
                 Collective collective, std::shared_ptr<const Plan> plan,
                 std::uint64_t its_sequence)
    : Operation(std::move(world), std::move(members), Channel::Plan, collective.call, its_sequence),
      steps_(std::move(collective), std::move(plan)) {}

void PlanRun::enter(const std::shared_ptr<PlanRun>& run) {
  std::deque<std::shared_ptr<Operation>>& lane = run->members().lane;
  lane.push_back(run);
  if (lane.size() == 1 && run->advance()) lane.pop_front();
}

// The messages of a step are over. Then this run goes on, and after it the next of its lane.
void PlanRun::step_over() {
  std::deque<std::shared_ptr<Operation>>& lane = members().lane;
  while (!lane.empty() && static_cast<PlanRun&>(*lane.front()).advance()) lane.pop_front();
}

// True if the plan is over, else messages are under way.
bool PlanRun::advance() {
  const bool is_over = steps_.advance([this] { return post_step(); }, [this] { finish_step(); });
  if (is_over) set_over();
  return is_over;
}

// True if no message is under way.
bool PlanRun::post_step() {
  messages_.clear();
  sums_.clear();
  copied_.clear();
  for (const PlanAction& action : steps_.actions()) {
    if (!is_message(action)) continue;
    messages_.push_back(steps_.message(action));
    sums_.push_back(action.kind == Kind::Send ? nullptr : sum_of(action));
  }
  world().engine.post(shared_from_this());
  if (open_ == 0) return true;
  copy_meanwhile();
  return false;
}

bool PlanRun::share_memory(const Piece& a, const Piece& b) const {
  if (a.count == 0 || b.count == 0) return false;
  const std::byte *begin_a = steps_.data(a), *begin_b = steps_.data(b);
  return begin_a < begin_b + steps_.bytes(b) && begin_b < begin_a + steps_.bytes(a);
}

// While messages are under way: the copies that have nothing to do with the rest of the step.
void PlanRun::copy_meanwhile() {
  const std::span<const PlanAction> step = steps_.actions();
  for (const PlanAction& copy : step) {
    const bool is_free = copy.kind == Kind::Copy &&
                         std::none_of(step.begin(), step.end(), [&](const PlanAction& other) {
                           return &other != &copy && (share_memory(other.from, copy.to) ||
                                                      share_memory(other.to, copy.to) ||
                                                      share_memory(other.to, copy.from));
                         });
    if (!is_free) continue;
    steps_.make(copy);
    copied_.push_back(&copy);
  }
}

// The sum that only adds what `recv` brings: nothing else in the step touches its two pieces.
const PlanAction* PlanRun::sum_of(const PlanAction& recv) const {
  const std::span<const PlanAction> step = steps_.actions();
  const auto sum = std::find_if(step.begin(), step.end(), [&](const PlanAction& action) {
    return action.kind == Kind::Reduce && same(action.from, recv.to);
  });
  if (sum == step.end() || may_overlap(sum->to, sum->from)) return nullptr;
  for (const PlanAction& other : step) {
    if (&other == &*sum || &other == &recv) continue;
    for (const Piece& piece : {other.from, other.to})
      if (may_overlap(piece, sum->to) || may_overlap(piece, sum->from)) return nullptr;
  }
  return &*sum;
}

void PlanRun::received(std::size_t index, std::size_t begin, std::size_t bytes) {
  const PlanAction* sum = sums_[index];
  if (!sum) return;
  const auto count = static_cast<std::int64_t>(bytes / size_of(call.dtype));
  reduce_into(steps_.data(sum->to) + begin, steps_.data(sum->from) + begin, count, call.dtype,
              call.reduce);
}

// What arriving messages and free time have left to do.
void PlanRun::finish_step() {
  const auto is_made = [this](const PlanAction& action) {
    return std::find(copied_.begin(), copied_.end(), &action) != copied_.end() ||
           std::find(sums_.begin(), sums_.end(), &action) != sums_.end();
  };
  for (const PlanAction& action : steps_.actions())
    if (!is_made(action)) steps_.make(action);
}

void PlanRun::release() { steps_.release(); }

}  // namespace aisc::mpi
