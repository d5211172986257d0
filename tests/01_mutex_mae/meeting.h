// Threads that wait for each other, but not for ever: what a test forces to happen at once. A test
// whose threads do not come ends with a message.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>
#include <thread>

namespace aisc {

// Far longer than threads that are all there take to meet, on one core and under a sanitizer too.
inline constexpr auto kPatience = std::chrono::seconds(5);

// A barrier that gives up: nobody is left waiting for a thread that never comes.
class Meeting {
 public:
  explicit Meeting(int threads) : threads_(threads) {}

  // Blocks until `threads` threads are here, and then begins anew. After kPatience in vain it
  // returns, and from then on at once.
  void wait() {
    std::unique_lock lock(mutex_);
    if (failed_) return;
    const int meeting = meetings_;
    if (++here_ == threads_) {
      here_ = 0;
      ++meetings_;
      changed_.notify_all();
      return;
    }
    const auto over = [&] { return failed_ || meetings_ != meeting; };
    if (changed_.wait_for(lock, kPatience, over)) return;
    failed_ = true;
    changed_.notify_all();
  }

  bool failed() const {
    const std::lock_guard lock(mutex_);
    return failed_;
  }

 private:
  const int threads_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int here_ = 0;
  int meetings_ = 0;
  bool failed_ = false;
};

// A barrier that threads leave within nanoseconds of each other: they look, and do not sleep. It
// soon lets a thread go on alone, so nothing may depend on it but how often threads collide.
class CloseMeeting {
 public:
  explicit CloseMeeting(int threads) : threads_(threads) {}

  void wait() {
    const std::int64_t here = ++arrived_, meeting = (here - 1) / threads_;
    const std::int64_t all = (meeting + 1) * threads_;
    // The last one would be ahead by as long as the others take to see that it came: each time it
    // lets another while pass.
    if (here == all)
      for (std::int64_t looks = 0; looks < meeting % 128; ++looks) arrived_.load();
    for (int looks = 0; looks < 2000 && arrived_ < all; ++looks)
      if (looks >= 200) std::this_thread::yield();
  }

 private:
  const int threads_;
  std::atomic<std::int64_t> arrived_ = 0;
};

// `size` threads that have to be here at the same time. A thread's first arrival waits for the
// others, its later ones do not; nor does anyone wait once time was up.
class Gathering {
 public:
  explicit Gathering(int size) : size_(size) {}

  void arrive() {
    std::unique_lock lock(mutex_);
    if (given_up_ || !here_.insert(std::this_thread::get_id()).second) return;
    if (present() == size_) changed_.notify_all();
    if (!changed_.wait_for(lock, kPatience, [&] { return given_up_ || present() >= size_; })) {
      given_up_ = true;
      changed_.notify_all();
    }
  }
  // Threads that came while others still waited: `size` if all met. To be asked at the end.
  int present() const { return static_cast<int>(here_.size()); }

 private:
  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::thread::id> here_;
  bool given_up_ = false;
};

// Something that one thread waits for and another one tells.
class Event {
 public:
  void tell() {
    const std::lock_guard lock(mutex_);
    told_ = true;
    changed_.notify_all();
  }
  // False if nobody told in time.
  bool wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return told_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool told_ = false;
};

}  // namespace aisc
