#include "03_data_parallel/loader.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/core/error.h"

namespace aisc {

Loader::Loader(const Rank& rank, const TrainConfig& config, std::int64_t ahead)
    : rank_(rank), batch_(config.batch), ahead_(static_cast<std::size_t>(ahead)) {
  if (ahead < 1) fail(fmt::format("loader: {} micro-batches ahead, expected 1 or more", ahead));
  const Range mine = share_of(batch_, rank.world.rank(), rank.world.size());
  for (std::int64_t m = 0; m < config.micro_batches; ++m)
    own_.push_back(share_of(mine, m, config.micro_batches));
}

Loader::~Loader() { end(); }

void Loader::begin(const SampleSource& data, std::int64_t first_sample) {
  end();
  data_ = data.copy();
  failure_ = nullptr;
  queue_.emplace(ahead_);
  next_batch_ = first_sample - own_[0].begin;
  next_ = 0;
  thread_ = std::thread([this, from = next_batch_] { load(from); });
}

void Loader::end() {
  if (queue_) queue_->close();
  if (thread_.joinable()) thread_.join();
}

void Loader::load(std::int64_t batch_begin) {
  try {
    for (;; batch_begin += batch_)
      for (const Range& part : own_) {
        const double begin = rank_.clock.now();
        Batch batch = data_->batch(host_, batch_begin + part.begin, part.count());
        rank_.trace.add("loader", "batch", begin, rank_.clock.now());
        if (!queue_->push(std::move(batch))) return;
      }
  } catch (...) {
    failure_ = std::current_exception();
    queue_->close();
  }
}

Batch Loader::read(const SampleSource& data, std::int64_t first_sample, std::int64_t count) {
  // Who asks for another place than the thread has gone on to begins anew: a run that is resumed.
  if (next_batch_ < 0 || first_sample != next_batch_ + own_[next_].begin) begin(data, first_sample);
  if (count != own_[next_].count())
    fail(fmt::format("loader: {} samples asked for, micro-batch {} has {}", count, next_,
                     own_[next_].count()));
  if (++next_ == own_.size()) {
    next_ = 0;
    next_batch_ += batch_;
  }
  // Empty: the thread has closed the queue, behind what it had made before it failed.
  const std::optional<Batch> loaded = queue_->pop();
  if (!loaded) std::rethrow_exception(failure_);
  return loaded->copy_to(rank_.device);
}

StepParts loaded_ahead(std::int64_t ahead, StepParts parts) {
  parts.reader = [ahead](const Rank& rank, const TrainConfig& config) {
    return std::make_unique<Loader>(rank, config, ahead);
  };
  return parts;
}

std::vector<double> stalls(const std::vector<double>& load, const std::vector<double>& step,
                           std::size_t prefetch) {
  std::vector<double> waited, taken;
  double loaded = 0, over = 0;
  // Before turn i: batch i - 1 was there at `loaded`, step i - 1 is over at `over`. The loader
  // begins the next batch when it has room: where batch i - 1 - prefetch was taken from the queue.
  for (std::size_t i = 0; i < load.size(); ++i) {
    if (prefetch == 0)
      loaded = over;
    else if (i > prefetch)
      loaded = std::max(loaded, taken[i - 1 - prefetch]);
    loaded += load[i];
    taken.push_back(std::max(over, loaded));
    waited.push_back(taken.back() - over);
    over = taken.back() + step[i];
  }
  return waited;
}

}  // namespace aisc
