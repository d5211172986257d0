#include "common/comm/thread/operations.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "common/comm/thread/communicator_state.h"

namespace aisc::thread {

Exchange::Exchange(std::shared_ptr<CommunicatorState> shared, int rank, const Call& its_call,
                   std::uint64_t sequence, std::span<const Transfer> transfers,
                   std::shared_ptr<RankLinks> links)
    : Messages(std::move(shared), rank, Channel::Direct, its_call, sequence),
      links_(std::move(links)),
      shares_(transfers) {
  add_messages(transfers, [this](const Message& message) { add(message); });
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

void Exchange::release() { shares_.release(); }

PlanRun::PlanRun(std::shared_ptr<CommunicatorState> shared, int rank, Collective collective,
                 Plan plan, std::uint64_t sequence, std::shared_ptr<Lane> lane,
                 double issued_seconds)
    : Messages(std::move(shared), rank, Channel::Plan, collective.call, sequence),
      steps_(std::move(collective), std::make_shared<const Plan>(std::move(plan))),
      lane_(std::move(lane)),
      now_(issued_seconds) {}

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

void PlanRun::advance() {
  if (!steps_.has_begun()) now_ = begin_seconds_ = std::max(now_, lane_->end_seconds);
  if (steps_.advance([this] { return post_step(); }, [this] { finish_step(); })) leave();
}

bool PlanRun::post_step() {
  for (const PlanAction& action : steps_.actions())
    if (is_message(action)) add(steps_.message(action));
  return post(now_, lane_->links);
}

// Virtual time, which only this backend has: messages take the links, and reductions their bytes.
void PlanRun::finish_step() {
  now_ = step_end(now_, lane_->links);
  const std::optional<Network>& network = world().options().network;
  for (const PlanAction& action : steps_.actions()) {
    steps_.make(action);
    if (network && action.kind == PlanAction::Kind::Reduce)
      now_ = network->reduced_seconds(now_, static_cast<std::int64_t>(steps_.bytes(action.to)));
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

void PlanRun::release() { steps_.release(); }

}  // namespace aisc::thread
