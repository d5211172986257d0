// Data that is read, decoded and put into batches beside training; and a step of training with each
// of its 15 parts a span of the trace.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "common/data/batches.h"
#include "common/train/step_parts.h"

namespace aisc {

// Between a thread that makes and one that takes. Closed, push() gives up and pop() takes what is
// left.
template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t capacity) : capacity_(capacity) {}

  // Waits while it is full. False: it is closed.
  bool push(T value) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return values_.size() < capacity_ || is_closed_; });
    if (is_closed_) return false;
    values_.push_back(std::move(value));
    changed_.notify_all();
    return true;
  }
  // Waits while it is empty, which counts as a stall. Nothing: it is closed and empty.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    if (values_.empty() && !is_closed_) ++stalls_;
    changed_.wait(lock, [&] { return !values_.empty() || is_closed_; });
    if (values_.empty()) return {};
    T value = std::move(values_.front());
    values_.pop_front();
    changed_.notify_all();
    return value;
  }
  void close() {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    changed_.notify_all();
  }
  void wait_until_full() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return values_.size() == capacity_ || is_closed_; });
  }
  std::int64_t stalls() const {
    const std::lock_guard lock(mutex_);
    return stalls_;
  }

 private:
  const std::size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> values_;
  std::int64_t stalls_ = 0;
  bool is_closed_ = false;
};

// The parts of a step, as they are named in the trace. The first five make a batch, in the loader's
// thread; the others are the training's. Without a queue there is no enqueue and no dequeue.
inline constexpr std::array<const char*, 15> kPartsOfAStep = {
    "choose",   "read",   "decode", "batch",   "enqueue",  //
    "dequeue",  "copy",   "clear",  "forward", "loss",
    "backward", "reduce", "norm",   "update",  "report"};

struct LoaderOptions {
  std::int64_t batch = 1;  // of all ranks, in samples of `context` tokens
  std::int64_t context = 1;
  std::uint64_t seed = 1;    // draws the samples, as BatchSampler does
  std::int64_t steps = 1;    // to load for
  std::size_t prefetch = 2;  // batches that may wait; 0: each is loaded when it is asked for
};

// A rank's share of each batch, from tokens that are in memory or in a mapped file, which must
// outlive it. It has a thread of its own if it may prefetch.
class Loader {
 public:
  Loader(const Rank& rank, TokenView tokens, const LoaderOptions& options);
  ~Loader();

  // The next step's, on the rank's device. Throws Error after the last, and what went wrong in the
  // thread.
  Batch next();
  // Until as many batches wait as may, or all are loaded. Not at all where it may not prefetch.
  void wait_until_full() {
    if (options_.prefetch > 0) queue_.wait_until_full();
  }
  std::int64_t stalls() const { return queue_.stalls(); }  // how often next() had to wait

 private:
  struct Loaded {
    Tensor tokens, targets;  // on the host
  };
  Loaded load(std::int64_t step);
  void run();

  const Rank rank_;
  const TokenView tokens_;
  const LoaderOptions options_;
  const BatchSampler sampler_;
  CpuDevice host_;
  std::int64_t next_ = 0;
  BoundedQueue<Loaded> queue_;
  std::exception_ptr failure_;
  std::thread thread_;
};

// A step of training with a loader, part by part; returns the loss in nats a token. Collective.
struct TrainedParts {
  const Model& model;
  ParameterStore& store;
  Optimizer& optimizer;
  Reducer& reducer;
};
double loaded_step(const Rank& rank, const TrainedParts& parts, Loader& loader,
                   const LoaderOptions& options, double learning_rate);

// Seconds that each step waits for its batch, where loading batch i takes load[i] and step i takes
// step[i], and up to `prefetch` batches wait: a loader begins batch i when batch i - 1 is loaded
// and batch i - 1 - prefetch has been taken; a step begins when the step before is over and its
// batch is there. With prefetch 0 each waits for all of its loading.
std::vector<double> stalls(const std::vector<double>& load, const std::vector<double>& step,
                           std::size_t prefetch);

}  // namespace aisc
