#include "common/comm/thread/operations.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "common/comm/backend/reduce.h"
#include "common/comm/thread/communicator_state.h"

namespace aisc::thread {
namespace {

std::byte* bytes_of(const ConstView& view) {
  return static_cast<std::byte*>(const_cast<void*>(view.raw()));
}

}  // namespace

Exchange::Exchange(std::shared_ptr<CommunicatorState> shared, int rank, const Call& its_call,
                   std::uint64_t sequence, std::span<const Transfer> transfers,
                   std::shared_ptr<RankLinks> links)
    : Messages(std::move(shared), rank, Channel::Direct, its_call, sequence),
      links_(std::move(links)) {
  for (const Transfer& t : transfers) {
    ins_.push_back(t.in.share());
    outs_.push_back(t.out.share());
    if (t.in.count() > 0) add({true, t.to, bytes_of(t.in.view()), t.in.count(), t.in.dtype()});
    if (t.out.count() > 0)
      add({false, t.from, bytes_of(t.out.view()), t.out.count(), t.out.dtype()});
  }
}

void Exchange::start(double now) {
  begin_seconds_ = now;
  if (post(now, *links_)) step_over();
}

double Exchange::end_seconds() const {
  if (end_seconds_ >= 0) return end_seconds_;
  RankLinks links = *links_;
  return step_end(begin_seconds_, links);
}

void Exchange::settle() {
  if (end_seconds_ < 0) end_seconds_ = step_end(begin_seconds_, *links_);
}

void Exchange::release() {
  ins_.clear();
  outs_.clear();
}

PlanRun::PlanRun(std::shared_ptr<CommunicatorState> shared, int rank, Collective collective,
                 Plan plan, std::uint64_t sequence, std::shared_ptr<Lane> lane,
                 double issued_seconds)
    : Messages(std::move(shared), rank, Channel::Plan, collective.call, sequence),
      collective_(std::move(collective)),
      plan_(std::move(plan)),
      lane_(std::move(lane)),
      now_(issued_seconds) {
  if (plan_.scratch_count == 0) return;
  const ConstView& in = collective_.in.view();
  const bool has_in = in.count() > 0;
  Device& device = has_in ? in.device() : collective_.out.view().device();
  scratch_ = Tensor({plan_.scratch_count}, call.dtype, device, Purpose::Communication);
}

void PlanRun::enter(const std::shared_ptr<PlanRun>& run) {
  {
    const std::lock_guard lock(run->lane_->mutex);
    run->lane_->waiting.push_back(run);
    if (run->lane_->waiting.size() > 1) return;
  }
  run->run_piece(-1);
}

bool PlanRun::run_piece(int /*rank*/) {
  running_.fetch_add(1);
  if (!world().has_failed()) advance();
  running_.fetch_sub(1);
  return false;
}

// After post_step() has said that messages are still under way, another thread may run this at
// once: nothing is touched any more.
void PlanRun::advance() {
  if (state_ == State::Waiting) {
    now_ = begin_seconds_ = std::max(now_, lane_->end_seconds);
  } else {
    finish_step();
    ++step_;
  }
  while (step_ < plan_.steps()) {
    state_ = State::Posted;
    if (!post_step()) return;
    finish_step();
    ++step_;
  }
  leave();
}

bool PlanRun::post_step() {
  for (const PlanAction& action : plan_.step(step_)) {
    if (action.kind == PlanAction::Kind::Send)
      add({true, action.peer, data(action.from), action.from.count, call.dtype});
    if (action.kind == PlanAction::Kind::Recv)
      add({false, action.peer, data(action.to), action.to.count, call.dtype});
  }
  return post(now_, lane_->links);
}

void PlanRun::finish_step() {
  now_ = step_end(now_, lane_->links);
  const std::optional<Network>& network = world().options().network;
  for (const PlanAction& action : plan_.step(step_)) {
    const auto bytes = static_cast<std::size_t>(action.to.count) * size_of(call.dtype);
    if (action.kind == PlanAction::Kind::Copy && data(action.to) != data(action.from))
      std::memmove(data(action.to), data(action.from), bytes);
    if (action.kind == PlanAction::Kind::Reduce) {
      reduce_into(data(action.to), data(action.from), action.to.count, call.dtype, call.reduce);
      if (network) now_ = network->reduced_seconds(now_, static_cast<std::int64_t>(bytes));
    }
  }
}

void PlanRun::leave() {
  std::shared_ptr<PlanRun> next;
  {
    const std::lock_guard lock(lane_->mutex);
    lane_->end_seconds = now_;
    lane_->waiting.pop_front();
    if (!lane_->waiting.empty()) next = lane_->waiting.front();
  }
  World& its_world = world();
  set_over();
  if (next) its_world.push(std::move(next));
}

void PlanRun::step_over() { world().push(std::static_pointer_cast<PlanRun>(shared_from_this())); }

std::vector<int> PlanRun::missing() const {
  std::shared_ptr<PlanRun> first;
  {
    const std::lock_guard lock(lane_->mutex);
    if (!lane_->waiting.empty()) first = lane_->waiting.front();
  }
  return first ? first->Messages::missing() : std::vector<int>{};
}

void PlanRun::withdraw() {
  while (running_.load() > 0) std::this_thread::yield();
  Messages::withdraw();
  const std::lock_guard lock(lane_->mutex);
  std::erase_if(lane_->waiting, [this](const auto& run) { return run.get() == this; });
}

void PlanRun::release() {
  collective_ = {};
  scratch_ = {};
}

std::byte* PlanRun::data(const Piece& piece) const { return data_of(piece, collective_, scratch_); }

}  // namespace aisc::thread
