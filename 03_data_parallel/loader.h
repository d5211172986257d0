// Batches that are made beside training.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "common/data/batches.h"
#include "common/train/trainer.h"

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

// Makes a rank's micro-batches in a thread of its own, in the order in which they are asked for:
// `ahead` of them may wait. They are those of SampleSource::batch(), to the bit.
class Loader final : public BatchReader {
 public:
  // `rank` is one of those that share batches. Throws Error for ahead < 1.
  Loader(const Rank& rank, const TrainConfig& config, std::int64_t ahead);
  ~Loader() override;

  // `data` is the same in each call, and copied: what its copies look at must outlive this. Where
  // `first_sample` is not the one that follows, as in the first call, loading begins there with a
  // step's first micro-batch. Throws what went wrong in the thread.
  Batch read(const SampleSource& data, std::int64_t first_sample, std::int64_t count) override;

  void wait_until_full() { queue_->wait_until_full(); }     // or until loading has failed
  std::int64_t stalls() const { return queue_->stalls(); }  // since it began: reads that waited

 private:
  void begin(const SampleSource& data, std::int64_t first_sample);
  void end();
  void load(std::int64_t batch_begin);

  const Rank rank_;
  const std::int64_t batch_;
  const std::size_t ahead_;
  std::vector<Range> own_;  // of a batch, by micro-batch
  std::unique_ptr<const SampleSource> data_;
  CpuDevice host_;
  std::int64_t next_batch_ = -1;  // where the next read's batch begins, and its micro-batch
  std::size_t next_ = 0;
  std::optional<BoundedQueue<Batch>> queue_;
  std::exception_ptr failure_;
  std::thread thread_;
};

// For a Trainer.
StepParts loaded_ahead(std::int64_t ahead, StepParts parts = {});

// Seconds that each step waits for its batch, where loading batch i takes load[i] and step i takes
// step[i], and up to `prefetch` batches wait: a loader begins batch i when batch i - 1 is loaded
// and batch i - 1 - prefetch has been taken; a step begins when the step before is over and its
// batch is there. With prefetch 0 each waits for all of its loading.
std::vector<double> stalls(const std::vector<double>& load, const std::vector<double>& step,
                           std::size_t prefetch);

}  // namespace aisc
