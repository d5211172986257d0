// How a rank waits, and the thread that moves things on while it computes.
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>

#include "common/comm/mpi/engine.h"
#include "common/comm/mpi/operation.h"
#include "common/comm/mpi/watchdog.h"
#include "common/core/system/threads.h"

namespace aisc::mpi {
namespace {

using namespace std::chrono_literals;

// A rank that waits looks all the time at first, giving way to others where cores are shared; then
// it sleeps between two looks, longer and longer.
constexpr auto kLooks = 1000us, kAlone = 5us, kShortSleep = 50us, kLongSleep = 500us;
constexpr int kSleepsPerStep = 100;
constexpr unsigned long kTimerSlackNanoseconds = 5000;  // the system's would double short sleeps

// The helper looks this often: while messages are under way, while there are none. What has moved
// so shortly before soon moves again.
constexpr std::chrono::microseconds kBusyLook = 100us, kIdleLook = 2ms;
constexpr auto kSoon = 30us;
constexpr int kLooksWhenWoken = 20;

}  // namespace

// How a waiting rank spends the time between two looks.
class Engine::Patience {
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
    if (way_ == GiveWay::Pause) cpu_pause();
    if (way_ == GiveWay::Yield) sched_yield();
  }

  const GiveWay way_;
  int looks_ = 0, sleeps_ = 0;
  Time start_{};
};

bool Engine::wait_until(const std::function<bool()>& over, std::optional<Time> deadline) {
  Patience patience(way_);
  while (!over()) {
    if (drive()) {
      patience.moved();
      continue;
    }
    const std::optional<Time> now = patience.wait();
    if (now) watchdog_.fail_if_gone();
    if (now && deadline && *now > *deadline) break;
  }
  return over();
}

std::size_t Engine::block(std::span<Operation* const> what) {
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
  const auto is_over = [&] { return watchdog_.has_failed() || first_over() < what.size(); };
  watchdog_.begin_wait(what);
  while (!wait_until(is_over, watchdog_.next_judgement())) watchdog_.judge_wait(is_over);
  watchdog_.end_wait();
  index = first_over();
  if (index < what.size()) return index;
  watchdog_.throw_failure();
}

bool Engine::ask(const Operation& what) {
  if (what.over()) return true;
  if (const std::unique_lock lock(mutex_, std::try_to_lock); lock) drive();  // else the helper does
  return what.over() || watchdog_.has_failed();
}

// While its rank computes somebody must move messages on, answer, and see that all are there.
//
// MPI wants one caller at a time, so two threads take turns by one mutex. The rank's thread comes
// first: it says that it wants the lock (inside_) before it asks for it. The helper looks at
// inside_ before every round, and only tries the lock. So the rank waits for one round of the
// helper's at most, and once the rank waits itself, the helper is out of its way.
//
// Two ranks exchange 64 MiB, calls not checked, compute for 5 ms and then wait. Rank 0:
//   0 us     rank     wakes the helper, posts 8 parts each way, lets the lock go and computes
//   30 us    helper   inside_ is false and the lock free: it drives; what has moved it follows
//                     until nothing has for 30 us (kSoon), sleeps 100 us (kBusyLook), and drives
//                     again
//   5 ms     rank     block() sets inside_ and gets the lock when the helper's round ends
//            helper   sees inside_ and leaves; it sleeps, soon for 2 ms at a time (kIdleLook)
//            rank     drives; if nothing moves it looks again at once for 1 ms (kLooks), then after
//                     sleeps of 50 us, longer and longer (Patience)
//   8 ms     rank     its exchange is over: it lets the lock go and inside_ fall
void Engine::help() {
  prctl(PR_SET_TIMERSLACK, kTimerSlackNanoseconds);
  bool is_busy = false;
  for (std::unique_lock lock(helper_mutex_); !stop_; lock.lock()) {
    helper_wake_.wait_for(lock, is_busy || helper_looks_-- > 0 ? kBusyLook : kIdleLook);
    lock.unlock();
    watchdog_.look();
    is_busy = help_once();
  }
}

// Returns whether there is something to move on: more than the receive of the watchdog.
bool Engine::help_once() {
  Time moved{};
  while (!inside_.load(std::memory_order_relaxed)) {
    {
      const std::unique_lock lock(mutex_, std::try_to_lock);
      if (!lock) break;
      watchdog_.fail_if_gone();
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
void Engine::wake_helper() {
  helper_looks_ = kLooksWhenWoken;
  helper_wake_.notify_one();
}

void Engine::start_helper() {
  helper_ = start_thread([this] { help(); });
}

void Engine::stop_helper() {
  {
    const std::lock_guard lock(helper_mutex_);
    stop_ = true;
  }
  helper_wake_.notify_all();
  if (helper_.joinable()) helper_.join();
}

}  // namespace aisc::mpi
