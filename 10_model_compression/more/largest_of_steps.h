// How large the numbers of a tensor were in the last steps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "common/core/error.h"

namespace aisc {

// From it comes the scale of a step before its numbers are there: "delayed" scaling, as NVIDIA's
// Transformer Engine has it (1,024 steps).
class LargestOfSteps {
 public:
  // Throws Error for a length below 1.
  explicit LargestOfSteps(std::int64_t length = 1024) : length_(positive(length)) {}

  // In this step there was a number so large. Several a step: micro-batches.
  void record(std::uint64_t step, float largest) {
    if (ring_.empty()) ring_.resize(length_ + 1);
    OfStep& its = ring_[step % ring_.size()];
    if (its.end != step + 1) its = {step + 1, 0};
    its.largest = std::max(its.largest, largest);
  }

  // The largest of the `length` steps before `step`; 0 if nothing was recorded in them. Of the step
  // itself nothing counts: its scale is the same for all of its micro-batches.
  float before(std::uint64_t step) const {
    float largest = 0;
    for (const OfStep& its : ring_)
      if (its.end > 0 && its.end <= step && its.end + length_ > step)
        largest = std::max(largest, its.largest);
    return largest;
  }

 private:
  struct OfStep {
    std::uint64_t end = 0;  // the step + 1; 0: none yet
    float largest = 0;
  };
  static std::uint64_t positive(std::int64_t length) {
    if (length < 1) fail("a history of " + std::to_string(length) + " steps, expected 1 or more");
    return static_cast<std::uint64_t>(length);
  }

  std::uint64_t length_;
  // One more: the step under way does not take the place of the oldest that counts for it.
  std::vector<OfStep> ring_;
};

}  // namespace aisc
