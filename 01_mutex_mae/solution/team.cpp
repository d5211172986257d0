// A run is a number: the caller publishes it, each thread that has seen it runs the body, and the
// last one out tells the caller. Whoever waits looks for a while, where there is a core for each
// thread, and then sleeps.
#include "01_mutex_mae/team.h"

#include <fmt/format.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <thread>
#include <vector>

#include "common/core/error.h"
#include "common/core/system/machine.h"

namespace aisc {
namespace {

// Longer than a sleeping thread takes to wake up.
constexpr auto kLooks = std::chrono::microseconds(100);
constexpr auto kLooksAlone = std::chrono::microseconds(10);  // before it lets others use the core

// Linux may wake a thread on the core of the one that woke it, and leave both there though other
// cores are idle. Sends the calling thread to another; from there it may go wherever it could.
void leave_core(int core) {
  cpu_set_t all;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  cpu_set_t others = all;
  CPU_CLR(core, &others);
  if (sched_setaffinity(0, sizeof others, &others) == 0) sched_setaffinity(0, sizeof all, &all);
}

}  // namespace

struct Team::State {
  explicit State(int count)
      : size(count), looks(count <= available_cores()), failures(std::size_t(count)) {}

  // Returns when `value` is no longer `old`.
  template <class T>
  void wait_while(const std::atomic<T>& value, T old) const {
    if (looks) {
      const auto begin = std::chrono::steady_clock::now();
      for (auto now = begin; now < begin + kLooks; now = std::chrono::steady_clock::now()) {
        if (value.load(std::memory_order_acquire) != old) return;
        // A thread of the team may have been woken on this core.
        if (now > begin + kLooksAlone) std::this_thread::yield();
      }
    }
    value.wait(old, std::memory_order_acquire);
  }

  void run_body(int thread) {
    try {
      (*body)(thread);
    } catch (...) {
      failures[static_cast<std::size_t>(thread)] = std::current_exception();
    }
  }

  void work(int thread) {
    for (std::uint64_t seen = 0;; ++seen) {
      wait_while(runs, seen);
      if (ended) return;
      if (looks && sched_getcpu() == callers_core) leave_core(callers_core);
      run_body(thread);
      if (running.fetch_sub(1, std::memory_order_acq_rel) == 1) running.notify_one();
    }
  }

  void start_run() {
    runs.fetch_add(1, std::memory_order_release);
    runs.notify_all();
  }

  const int size;
  const bool looks;
  std::atomic<bool> in_run = false;
  // Written before `runs` grows, read after it was seen to.
  const std::function<void(int)>* body = nullptr;
  int callers_core = 0;
  bool ended = false;
  std::atomic<std::uint64_t> runs = 0;
  std::atomic<int> running = 0;  // threads other than the caller that are not done yet
  std::vector<std::exception_ptr> failures;
  std::vector<std::jthread> threads;
};

Team::Team(int threads) {
  if (threads < 1) fail(fmt::format("team: {} threads: at least 1 is needed", threads));
  state_ = std::make_unique<State>(threads);
  try {
    for (int t = 1; t < threads; ++t)
      state_->threads.emplace_back([state = state_.get(), t] { state->work(t); });
  } catch (...) {
    state_->ended = true;
    state_->start_run();
    throw;
  }
}

Team::~Team() {
  state_->ended = true;
  state_->start_run();
}

int Team::size() const { return state_->size; }

void Team::run(const std::function<void(int thread)>& body) {
  State& state = *state_;
  if (state.in_run.exchange(true))
    fail("team: run() was called from within a run of the same team");
  state.body = &body;
  state.callers_core = sched_getcpu();
  state.running.store(state.size - 1, std::memory_order_relaxed);
  state.start_run();
  state.run_body(0);
  for (int left = state.running.load(std::memory_order_acquire); left > 0;
       left = state.running.load(std::memory_order_acquire))
    state.wait_while(state.running, left);
  state.in_run = false;
  std::exception_ptr first;
  for (std::exception_ptr& failure : state.failures) {
    if (failure && !first) first = failure;
    failure = nullptr;
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace aisc
