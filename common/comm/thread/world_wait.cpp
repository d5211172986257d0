// How a rank waits: it looks, sleeps, is woken; and how the last one awake finds what happens next.
#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "common/comm/thread/world.h"

namespace aisc::thread {
namespace {

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

std::size_t World::first_over(std::span<const Waitable* const> what) {
  for (std::size_t i = 0; i < what.size(); ++i)
    if (what[i]->over()) return i;
  return kNone;
}

std::size_t World::earliest_over(const RankState& me) const {
  std::size_t best = kNone;
  for (std::size_t i = 0; i < me.waits_for.size(); ++i) {
    const Waitable& it = *me.waits_for[i];
    if (it.over() && (best == kNone || it.end_seconds() < me.waits_for[best]->end_seconds()))
      best = i;
  }
  return best;
}

// Virtual time: which of several operations ends first is known only when nothing can happen
// before, which decide() finds out.
bool World::is_settled(const RankState& me) const {
  if (me.mode == Mode::Earliest) return me.decided;
  return me.decided || first_over(me.waits_for) != kNone;
}

std::size_t World::block(int rank, std::span<const Waitable* const> what) {
  return wait_for(rank, what, is_virtual() && what.size() > 1 ? Mode::Earliest : Mode::First);
}

bool World::is_over_by_now(int rank, const Waitable& what) {
  const Waitable* const one[] = {&what};
  if (!what.over()) wait_for(rank, one, Mode::Ask);
  return has_failed() || (what.over() && what.end_seconds() <= clock(rank).now());
}

// First looks for a while, which is enough when all ranks have a core each; then sleeps until
// something that it waits for is over, doing jobs that come up.
std::size_t World::wait_for(int rank, std::span<const Waitable* const> what, Mode mode) {
  RankState& me = state(rank);
  std::size_t index = mode == Mode::Earliest ? kNone : first_over(what);
  if (index != kNone) return index;

  me.looking.store(true, std::memory_order_relaxed);
  for (int round = 0; round < looks_ && index == kNone && !has_failed(); ++round) {
    if (job_count_.load(std::memory_order_relaxed) > 0 && run_job(rank))
      round = 0;
    else if (has_own_core_)
      pause();
    else
      std::this_thread::yield();
    index = first_over(what);
  }
  if (index == kNone) {
    Lock lock(mutex_);
    const Time start = std::chrono::steady_clock::now();
    const auto patience = std::chrono::duration_cast<Time::duration>(
        std::chrono::duration<double>(options_.timeout_seconds));
    Time deadline = start + patience;
    me.waits_for = what;
    ++waiting_;
    me.mode = mode;
    me.decided = false;
    undecided_ += mode != Mode::First;
    std::uint64_t jobs_before = jobs_done_;
    while (!is_settled(me) && !has_failed()) {
      if (run_job(rank, lock)) continue;
      const Time now = std::chrono::steady_clock::now();
      if (now >= deadline && ((mode == Mode::First && missing_of(rank).empty()) ||
                              (is_virtual() && jobs_done_ != jobs_before))) {
        deadline = now + patience;  // it is being worked on
        jobs_before = jobs_done_;
      } else if (now >= deadline) {
        fail_locked(diagnose(rank, std::chrono::duration<double>(now - start).count()));
      } else if (!is_last_awake()) {
        park(me, lock, deadline);
      } else if (!decide(lock)) {
        fail_locked(diagnose(rank, 0));  // nobody is left who could end this
      }
    }
    index = mode == Mode::Earliest ? earliest_over(me) : first_over(what);
    undecided_ -= mode != Mode::First;
    me.waits_for = {};
    --waiting_;
  }
  me.looking.store(false);
  if (job_count_.load() > 0) {  // somebody else has to look now
    const Lock lock(mutex_);
    if (is_virtual() || looking() == 0) offer_jobs();
  }
  if (index == kNone && mode != Mode::Ask) throw_failure();
  return index;
}

// A rank sleeps here, and nowhere else. Whoever makes something `over` looks at `parked` after it,
// this rank looks whether it is over after setting `parked`: one of them sees the other.
void World::park(RankState& me, Lock& lock, Time deadline) {
  me.woken = false;
  me.parked.store(true);
  if (!is_settled(me)) {
    me.looking.store(false);
    --running_;
    ++parked_;
    me.wake.wait_until(lock, deadline, [&] { return me.woken; });
    if (!me.woken) {  // too late: it wakes by itself
      ++running_;
      --parked_;
    }
    me.looking.store(true, std::memory_order_relaxed);
  }
  me.parked.store(false);
}

void World::wake(RankState& other) {
  if (!other.parked.load() || other.woken) return;
  other.woken = true;
  ++running_;
  --parked_;
  other.wake.notify_one();
}

void World::notify(int rank) {
  if (!state(rank).parked.load()) return;
  const Lock lock(mutex_);
  wake(state(rank));
}

bool World::is_last_awake() const { return running_ == 1 && jobs_.empty() && !helper_busy_; }

void World::send_by_wire(WireMessage message) {
  const Lock lock(mutex_);
  const double sent = message.sent_seconds;
  const auto [from, issue, part] = std::tuple(message.from, message.issue, message.part);
  wire_messages_.push(sent, from, issue, part, std::move(message));
}

// Virtual time, when every rank waits: what is known so far is all that can happen up to the
// earliest of these events, so that it may happen now. True if there was one.
bool World::decide(Lock& lock) {
  RankState* first = nullptr;
  double first_seconds = std::numeric_limits<double>::infinity();
  if (undecided_ > 0)
    for (const auto& rank : ranks_) {
      if (rank->waits_for.empty() || rank->mode == Mode::First || rank->decided) continue;
      double seconds = rank->clock->now();
      if (rank->mode == Mode::Earliest) {
        const std::size_t index = earliest_over(*rank);
        if (index == kNone) continue;
        seconds = std::max(seconds, rank->waits_for[index]->end_seconds());
      }
      if (seconds < first_seconds) {
        first = rank.get();
        first_seconds = seconds;
      }
    }
  if (!wire_messages_.empty() && wire_messages_.next_seconds() <= first_seconds) {
    const WireMessage message = wire_messages_.pop();
    const Passage passage =
        wires_->pass(message.from, message.to, message.bytes, message.sent_seconds);
    lock.unlock();
    message.deliver(passage);
    lock.lock();
    return true;
  }
  if (!first) return false;
  first->decided = true;
  wake(*first);
  return true;
}

}  // namespace aisc::thread
