// Operations whose end in virtual time is known when they begin.
#pragma once

#include <algorithm>
#include <utility>

#include "common/core/clock.h"
#include "common/core/error.h"
#include "common/core/work.h"

namespace aisc {

class TimedOperation : public PendingOperation {
 public:
  TimedOperation(Clock& clock, double end_seconds) : clock_(clock), end_seconds_(end_seconds) {}

  void wait() final {
    if (std::exchange(is_over_, true)) return;
    const double now = clock_.now();
    clock_.advance_to(end_seconds_);
    finish(now);
  }
  bool done() final { return is_over_ || clock_.now() >= end_seconds_; }
  // The earliest; of other kinds nothing is known of the end, and asking moves no clock.
  std::size_t wait_any(std::span<PendingOperation* const> operations) final {
    const auto end_of = [](PendingOperation* operation) {
      const auto* timed = dynamic_cast<const TimedOperation*>(operation);
      if (!timed) fail("wait_any: copies and collectives of an emulated device wait apart");
      return timed->is_over_ ? 0.0 : timed->end_seconds_;
    };
    const auto first = std::min_element(
        operations.begin(), operations.end(),
        [&](PendingOperation* a, PendingOperation* b) { return end_of(a) < end_of(b); });
    end_of(*first);  // of a single one, too
    return static_cast<std::size_t>(first - operations.begin());
  }

 private:
  // What is done at its end, for which the rank waited from `asked_seconds` on.
  virtual void finish(double asked_seconds) = 0;

  Clock& clock_;
  const double end_seconds_;
  bool is_over_ = false;
};

}  // namespace aisc
