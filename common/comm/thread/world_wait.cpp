// How a rank waits: it looks, sleeps, is woken; and how the last one awake finds what happens next.
#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "common/comm/thread/world.h"
#include "common/core/system/threads.h"

namespace aisc::thread {
namespace {

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

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

// A rank waits in two stages.
//
// It *looks*: for `looks_` rounds it asks whether something of `what` is over, and does pieces of
// jobs meanwhile; each piece begins the count anew. Where every rank has a core of its own most
// waits end here, and nobody sleeps. In virtual time `looks_` is 0.
//
// Then, under the lock, it goes round a loop until it is *settled* (is_settled) or the world has
// failed. A round does one thing, the first of these that applies:
//   - There is a job: it does a piece.
//   - The deadline has passed: the world fails; or it has a new deadline, if what it waits for is
//     being worked on: with Mode::First nobody's call is missing, or in virtual time jobs were done
//     since.
//   - Others run, or the helper does a job: it parks. `running_` counts the ranks that are neither
//     parked nor finished; who wakes a rank counts it at once, before its thread goes on, so that
//     nobody overlooks it.
//   - It is the last awake: what is to happen next must happen here. decide() brings the earliest
//     event about. If there is none, nobody is left who could end any wait. That is a deadlock, and
//     the world fails at once. In wall time there is never an event.
//
// Who is to blame, diagnose() finds (backend/diagnose.h). missing_of(rank) is whose calls the rank
// still needs. From rank to rank it goes on to the lowest of these that itself waits; where it
// comes to a rank again it names the cycle. If there is none, it names the first ranks on its way
// that are missing and do not wait, and what they called last.
//
// By hand, in wall time: of four ranks 0, 1 and 2 call barrier, then 3 waits for a message from 0.
//   rank 0 parks   running_ 3, parked_ 1
//   rank 1 parks   running_ 2, parked_ 2
//   rank 2 parks   running_ 1, parked_ 3
//   rank 3 comes   no job, running_ is 1, decide() finds nothing: diagnose(3)
//                  3 misses 0, which waits; 0 misses 3, which waits: a cycle of 3 and 0
//   it fails       which wakes all: running_ 4, parked_ 0; each of the four throws the same error
// Had rank 3 returned instead, its finish() would have been the last awake: the barrier of rank 0
// misses rank 3, which does not wait, and whose last call the error tells.
std::size_t World::wait_for(int rank, std::span<const Waitable* const> what, Mode mode) {
  RankState& me = state(rank);
  std::size_t index = mode == Mode::Earliest ? kNone : first_over(what);
  if (index != kNone) return index;

  me.looking.store(true, std::memory_order_relaxed);
  for (int round = 0; round < looks_ && index == kNone && !has_failed(); ++round) {
    if (job_count_.load(std::memory_order_relaxed) > 0 && run_job(rank))
      round = 0;
    else if (has_own_core_)
      cpu_pause();
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

// A rank sleeps here, and nowhere else. Whoever makes something `over` looks at `parked` after it
// (notify), this rank looks whether it is over after setting `parked`: one of them sees the other.
// notify() then needs the lock, which this rank holds until it sleeps: no waking is lost.
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

// Virtual time. The threads of ranks run in any order, and what passes on links does not depend on
// it: both sides bring their own times. Three things do, and are decided here: which message goes
// next over cards or wires, which of several operations ends first (wait_any, Mode::Earliest), and
// whether an operation is over by its rank's time (done(), Mode::Ask).
//
// The caller is the last awake, so every rank is parked, has finished, or is the caller; who sleeps
// may be asked for its clock and its operations. The events that are known:
//   - the first of `wire_messages_`, at the time at which it was sent;
//   - a rank in wait_any of whose operations some are over, at the earliest end of these, or at its
//     own time if that is later;
//   - a rank in done(), at its own time.
// Whatever else will happen follows from one of these, and nothing takes less than no time: so it
// happens no earlier than the earliest event, which may therefore happen now. A message passes and
// is delivered, which may end operations and wake their ranks. A rank is told that it is `decided`
// and goes on. Of events at one time messages go first, so that what they end counts, then the
// lowest rank. True if there was an event; the next one is looked for when all wait again.
//
// By hand: nodes {0, 1} and {2, 3} have a card each, latency 1, and a message passes for 2. Rank 0
// sends to 2 at 5, rank 1 to 3 at 3, and both wait; rank 2 waits for its message; rank 3 asks at 4
// whether its message is there. All wait, whichever thread was first.
//   decide   events: 1 -> 3 sent at 3, rank 3 asks at 4, 0 -> 2 sent at 5. The first message passes
//            from 3 + 1 = 4 to 6; until then both cards are taken. Rank 1 goes on at 6. Rank 3
//            hears that its message is over at 6, so not at 4; it waits for it. Both then return.
//   decide   event: 0 -> 2 sent at 5. It passes from max(5 + 1, 6) = 6 to 8; 0 and 2 go on at 8.
// Had 0 -> 2 passed first because rank 0's thread was first, 1 -> 3 would have passed from 8 to 10.
// And had rank 3 asked at 2, its question would have been the earliest event: the message cannot be
// there by then.
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
