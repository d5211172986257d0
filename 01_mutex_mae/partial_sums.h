// Sums of several threads side by side in memory: in one cache line, or each in its own. A core
// that writes to a line takes it away from all others, whatever in it they use (false sharing).
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "01_mutex_mae/problem.h"
#include "01_mutex_mae/team.h"

namespace aisc {

inline constexpr std::size_t kCacheLineBytes = 64;

enum class Layout { Packed, Padded };

// One sum a thread, all 0 at first. Packed: next to each other, 8 bytes apart. Padded: each at the
// beginning of a cache line that nobody else's sum is in.
class PartialSums {
 public:
  PartialSums(int threads, Layout layout);  // throws Error unless threads >= 1

  int threads() const { return threads_; }
  std::atomic<double>& of(int thread);  // valid as long as this
  double total() const;                 // added in the order of threads

 private:
  struct alignas(kCacheLineBytes) Line {
    std::atomic<double> sums[kCacheLineBytes / sizeof(double)] = {};
  };
  int threads_;
  Layout layout_;
  int line_count_ = 0;
  std::unique_ptr<Line[]> lines_;
};

// Thread t adds each error of its chunk to sums.of(t): a relaxed load and a relaxed store, which is
// enough where nobody else writes. Returns (what total() has grown by) / N, 0 for N = 0. Throws
// Error unless sums.threads() == team.size().
double mae_partial_sums(const Problem& problem, Team& team, PartialSums& sums);

}  // namespace aisc
