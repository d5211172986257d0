// How a rank waits, and the thread that moves things on while it computes.
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "common/comm/mpi/engine.h"
#include "common/comm/mpi/operation.h"
#include "common/core/error.h"

namespace aisc::mpi {
namespace {

using namespace std::chrono_literals;

// A rank that waits looks all the time at first, giving way to others where cores are shared; then
// it sleeps between two looks, longer and longer.
constexpr auto kLooks = 1000us, kAlone = 5us, kShortSleep = 50us, kLongSleep = 500us;
constexpr int kSleepsPerStep = 100;
constexpr auto kGlance = 100ms;                         // at ranks that have returned
constexpr unsigned long kTimerSlackNanoseconds = 5000;  // the system's would double short sleeps

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// The helper looks this often: while messages are under way, while there are none, and for ranks
// that are gone.
constexpr std::chrono::microseconds kBusyLook = 100us, kIdleLook = 2ms, kGoneLook = 100ms;
constexpr auto kSoon = 30us;
constexpr int kLooksWhenWoken = 20;

// A signal handler has no argument for it.
std::atomic<bool> term_came = false;
static_assert(std::atomic<bool>::is_always_lock_free);
void on_term(int) { term_came = true; }

}  // namespace

// How a waiting rank spends the time between two looks.
class World::Patience {
 public:
  explicit Patience(GiveWay way) : way_(way) {}

  void moved() { looks_ = sleeps_ = 0; }
  // Returns the time when it is worth asking what it is.
  std::optional<Time> wait() {
    constexpr int kLooksPerTime = 16;
    if (++looks_ % kLooksPerTime != 0 && sleeps_ == 0) {
      give_way();
      return {};
    }
    const Time now = std::chrono::steady_clock::now();
    if (looks_ == kLooksPerTime) start_ = now;
    if (now - start_ < kLooks) {
      if (now - start_ > kAlone && way_ == GiveWay::Pause)
        sched_yield();  // the system may have put two ranks on one core
      else
        give_way();
    } else {
      if (sleeps_ == 0) prctl(PR_SET_TIMERSLACK, kTimerSlackNanoseconds);
      const int longer = std::min(10, 1 + ++sleeps_ / kSleepsPerStep);
      std::this_thread::sleep_for(std::min(kShortSleep * longer, kLongSleep));
    }
    return now;
  }

 private:
  void give_way() const {
    if (way_ == GiveWay::Pause) pause();
    if (way_ == GiveWay::Yield) sched_yield();
  }

  const GiveWay way_;
  int looks_ = 0, sleeps_ = 0;
  Time start_{};
};

bool World::wait_until(const std::function<bool()>& over, std::optional<Time> deadline) {
  Patience patience(way_);
  while (!over()) {
    if (drive()) {
      patience.moved();
      continue;
    }
    const std::optional<Time> now = patience.wait();
    if (now && gone_ >= 0) note_gone(gone_);
    if (now && deadline && *now > *deadline) break;
  }
  return over();
}

std::size_t World::block(std::span<Operation* const> what) {
  const auto first_over = [&] {
    std::size_t i = 0;
    while (i < what.size() && !what[i]->over()) ++i;
    return i;
  };
  std::size_t index = first_over();
  if (index < what.size()) return index;
  const Entry entry(*this);
  drive();
  if ((index = first_over()) < what.size()) return index;
  const Operation& first = *what.front();
  RawCall& waits_in = session_.board().mine().waits_in;
  waits_in.set(first.call, first.sequence, first.group().name);
  waits_for_ = what;
  const Time start = std::chrono::steady_clock::now(), deadline = start + timeout_;
  const auto is_over = [&] { return failed_ || first_over() < what.size(); };
  while (!wait_until(is_over, std::min(std::chrono::steady_clock::now() + kGlance, deadline))) {
    const Time now = std::chrono::steady_clock::now();
    const bool is_late = now >= deadline;
    if (!is_late && !waits_for_finished_rank(now)) continue;
    ask_all();
    if (is_over() || (!is_late && !waits_for_finished_rank(now))) continue;
    const double waited = std::chrono::duration<double>(now - start).count();
    fail_inside(diagnose(is_late ? waited : 0));
  }
  waits_for_ = {};
  waits_in.clear();
  index = first_over();
  if (index < what.size()) return index;
  aisc::fail(failure_);
}

bool World::ask(const Operation& what) {
  if (what.over()) return true;
  if (const Lock lock(mutex_, std::try_to_lock); lock) drive();  // else the helper does
  return what.over() || has_failed();
}

// While its rank computes somebody must move messages on, answer, and see that all are there.
void World::help() {
  prctl(PR_SET_TIMERSLACK, kTimerSlackNanoseconds);
  Time last_look{};
  bool is_busy = false;
  for (std::unique_lock lock(helper_mutex_); !stop_; lock.lock()) {
    helper_wake_.wait_for(lock, is_busy || helper_looks_-- > 0 ? kBusyLook : kIdleLook);
    lock.unlock();
    const Time now = std::chrono::steady_clock::now();
    if (term_came || now - last_look > kGoneLook) {
      last_look = now;
      look_for_gone_ranks();
    }
    if (term_came) {
      signal(SIGTERM, SIG_DFL);
      raise(SIGTERM);
    }
    is_busy = help_once();
  }
}

// Programs that end gracefully on SIGTERM have a handler of their own, or install one later.
void World::handle_term() {
  term_came = false;
  sigaction(SIGTERM, nullptr, &previous_term_);
  handles_term_ = previous_term_.sa_handler == SIG_DFL;
  if (!handles_term_) return;
  struct sigaction action = {};
  action.sa_handler = on_term;
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, nullptr);
}

void World::restore_term() {
  struct sigaction now = {};
  sigaction(SIGTERM, nullptr, &now);
  if (std::exchange(handles_term_, false) && now.sa_handler == on_term)
    sigaction(SIGTERM, &previous_term_, nullptr);
}

// Returns whether there is something to move on. What has just moved soon moves again.
bool World::help_once() {
  Time moved{};
  while (!inside_.load(std::memory_order_relaxed)) {
    {
      const Lock lock(mutex_, std::try_to_lock);
      if (!lock) break;
      if (gone_ >= 0) note_gone(gone_);
      if (drive())
        moved = std::chrono::steady_clock::now();
      else if (std::chrono::steady_clock::now() - moved > kSoon)
        return requests_.size() > 1;
    }
    sched_yield();
  }
  return false;
}

// For operations that take longer than waking a thread.
void World::wake_helper() {
  helper_looks_ = kLooksWhenWoken;
  helper_wake_.notify_one();
}

void World::look_for_gone_ranks() {
  if (gone_ >= 0) return;
  const int gone = session_.board().gone_rank();
  if (gone >= 0) std::fputs(session_.board().report_of(gone).c_str(), stderr);
  gone_ = gone;  // from now on the rank fails, and waits no more
}

}  // namespace aisc::mpi
