// Threads that wait for work together, and a mutex that counts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

namespace aisc {

// T threads: the caller, which is thread 0, and T - 1 that sleep between two runs. Starting a
// thread takes some 20 microseconds, as long as reading 600 KB; a team starts them once.
class Team {
 public:
  explicit Team(int threads);  // throws Error unless threads >= 1
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const;

  // Runs body(0) in the caller's thread and body(1) ... body(T - 1) in the others, and returns when
  // all have. If some threw, what the lowest of them threw is thrown here. Not to be called from
  // within a run: throws Error.
  void run(const std::function<void(int thread)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A std::mutex that counts how often it was locked: std::lock_guard and its like take it.
class CountedMutex {
 public:
  // `unlocked`, if given, is called after each unlock, in the thread that unlocked: tests let other
  // threads go first there.
  explicit CountedMutex(std::function<void()> unlocked = {}) : unlocked_(std::move(unlocked)) {}

  void lock() {
    mutex_.lock();
    ++locks_;
  }
  void unlock() {
    mutex_.unlock();
    if (unlocked_) unlocked_();
  }
  // To be asked when nobody locks.
  std::int64_t locks() const { return locks_; }

 private:
  std::mutex mutex_;
  std::int64_t locks_ = 0;
  std::function<void()> unlocked_;
};

}  // namespace aisc
