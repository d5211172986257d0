#include "common/comm/mpi/operation.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/comm/backend/reduce.h"

namespace aisc::mpi {
namespace {

using Kind = PlanAction::Kind;

std::byte* bytes_of(const ConstView& view) {
  return static_cast<std::byte*>(const_cast<void*>(view.raw()));
}

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
    : Operation(std::move(world), std::move(members), Channel::Direct, its_call, its_sequence) {
  for (const Transfer& t : transfers) {
    ins_.push_back(t.in.share());
    outs_.push_back(t.out.share());
    if (t.in.count() > 0)
      messages_.push_back({true, t.to, bytes_of(t.in.view()), t.in.count(), t.in.dtype()});
    if (t.out.count() > 0)
      messages_.push_back({false, t.from, bytes_of(t.out.view()), t.out.count(), t.out.dtype()});
  }
}

void Exchange::start() {
  if (messages_.empty()) return set_over();
  world().engine.post(shared_from_this());
}

void Exchange::release() {
  ins_.clear();
  outs_.clear();
}

PlanRun::PlanRun(std::shared_ptr<World> world, std::shared_ptr<Members> members,
                 Collective collective, std::shared_ptr<const Plan> plan,
                 std::uint64_t its_sequence)
    : Operation(std::move(world), std::move(members), Channel::Plan, collective.call, its_sequence),
      collective_(std::move(collective)),
      plan_(std::move(plan)) {
  if (plan_->scratch_count == 0) return;
  const ConstView& in = collective_.in.view();
  Device& device = in.count() > 0 ? in.device() : collective_.out.view().device();
  scratch_ = Tensor({plan_->scratch_count}, call.dtype, device, Purpose::Communication);
}

void PlanRun::enter(const std::shared_ptr<PlanRun>& run) {
  std::deque<std::shared_ptr<Operation>>& lane = run->members().lane;
  lane.push_back(run);
  if (lane.size() == 1 && run->advance()) lane.pop_front();
}

// The messages of a step are over. Then this run goes on, and after it the next of its lane.
void PlanRun::group_over() {
  finish_step();
  ++step_;
  std::deque<std::shared_ptr<Operation>>& lane = members().lane;
  while (!lane.empty() && static_cast<PlanRun&>(*lane.front()).advance()) lane.pop_front();
}

// True if the plan is over, else messages are under way.
bool PlanRun::advance() {
  for (; step_ < plan_->steps(); ++step_) {
    post_step();
    if (open_ > 0) {
      copy_meanwhile();
      return false;
    }
    finish_step();
  }
  set_over();
  return true;
}

void PlanRun::post_step() {
  messages_.clear();
  sums_.clear();
  copied_.clear();
  for (const PlanAction& action : plan_->step(step_)) {
    const bool is_send = action.kind == Kind::Send;
    if (!is_send && action.kind != Kind::Recv) continue;
    const Piece& piece = is_send ? action.from : action.to;
    messages_.push_back({is_send, action.peer, data(piece), piece.count, call.dtype});
    sums_.push_back(is_send ? nullptr : sum_of(action));
  }
  world().engine.post(shared_from_this());
}

bool PlanRun::share_memory(const Piece& a, const Piece& b) const {
  if (a.count == 0 || b.count == 0) return false;
  const auto size = static_cast<std::ptrdiff_t>(size_of(call.dtype));
  const std::byte *begin_a = data(a), *begin_b = data(b);
  return begin_a < begin_b + b.count * size && begin_b < begin_a + a.count * size;
}

// While messages are under way: the copies that have nothing to do with the rest of the step.
void PlanRun::copy_meanwhile() {
  const std::span<const PlanAction> step = plan_->step(step_);
  for (const PlanAction& copy : step) {
    const bool is_free = copy.kind == Kind::Copy &&
                         std::none_of(step.begin(), step.end(), [&](const PlanAction& other) {
                           return &other != &copy && (share_memory(other.from, copy.to) ||
                                                      share_memory(other.to, copy.to) ||
                                                      share_memory(other.to, copy.from));
                         });
    if (!is_free) continue;
    if (data(copy.to) != data(copy.from))
      std::memmove(data(copy.to), data(copy.from),
                   static_cast<std::size_t>(copy.to.count) * size_of(call.dtype));
    copied_.push_back(&copy);
  }
}

// The sum that only adds what `recv` brings: nothing else in the step touches its two pieces.
const PlanAction* PlanRun::sum_of(const PlanAction& recv) const {
  const std::span<const PlanAction> step = plan_->step(step_);
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
  reduce_into(data(sum->to) + begin, data(sum->from) + begin, count, call.dtype, call.reduce);
}

void PlanRun::finish_step() {
  for (const PlanAction& action : plan_->step(step_)) {
    if (std::find(copied_.begin(), copied_.end(), &action) != copied_.end()) continue;
    const auto bytes = static_cast<std::size_t>(action.to.count) * size_of(call.dtype);
    if (action.kind == Kind::Copy && data(action.to) != data(action.from))
      std::memmove(data(action.to), data(action.from), bytes);
    if (action.kind == Kind::Reduce &&
        std::find(sums_.begin(), sums_.end(), &action) == sums_.end())
      reduce_into(data(action.to), data(action.from), action.to.count, call.dtype, call.reduce);
  }
}

std::byte* PlanRun::data(const Piece& piece) const { return data_of(piece, collective_, scratch_); }

void PlanRun::release() {
  collective_ = {};
  scratch_ = {};
}

}  // namespace aisc::mpi
