// Recomputation within a budget: what may be kept nevertheless.
#pragma once

#include <algorithm>
#include <cstdint>

namespace aisc {

// Of forwards one behind another, which keep all that they make: as many as fit into a budget, the
// first to come first; a backward gives its forward's bytes back (Korthikanti et al., arXiv
// 2205.05198, appendix C).
class KeptBytes {
 public:
  explicit KeptBytes(std::int64_t budget) : budget_(budget) {}

  // Whether a forward may keep what it makes. How much that is, the first tells.
  bool has_room() const { return budget_ > 0 && held_ + largest_ <= budget_; }
  // It has kept so much. False: it does not fit, and has to be given up at once.
  bool keep(std::int64_t bytes) {
    largest_ = std::max(largest_, bytes);
    if (held_ + bytes > budget_) return false;
    held_ += bytes;
    return true;
  }
  void give_back(std::int64_t bytes) { held_ -= bytes; }

 private:
  const std::int64_t budget_;
  std::int64_t held_ = 0, largest_ = 0;
};

}  // namespace aisc
