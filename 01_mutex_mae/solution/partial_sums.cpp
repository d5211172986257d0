#include "01_mutex_mae/partial_sums.h"

#include <fmt/format.h>

#include "01_mutex_mae/mae.h"
#include "common/core/error.h"

namespace aisc {
namespace {

constexpr int kSumsInLine = kCacheLineBytes / sizeof(double);

}  // namespace

PartialSums::PartialSums(int threads, Layout layout) : threads_(threads), layout_(layout) {
  if (threads < 1) fail(fmt::format("partial sums: {} threads: at least 1 is needed", threads));
  line_count_ = layout == Layout::Padded ? threads : (threads + kSumsInLine - 1) / kSumsInLine;
  lines_ = std::make_unique<Line[]>(static_cast<std::size_t>(line_count_));
}

// Both layouts have the sums in the order of threads, and 0 in between.
double PartialSums::total() const {
  double sum = 0;
  for (int line = 0; line < line_count_; ++line)
    for (const std::atomic<double>& one : lines_[static_cast<std::size_t>(line)].sums)
      sum += one.load(std::memory_order_relaxed);
  return sum;
}

std::atomic<double>& PartialSums::of(int thread) {
  // LAB 01.9: false sharing
  // > lines_[k].sums[s] is sum s of the 8 in cache line k.
  if (layout_ == Layout::Padded) return lines_[static_cast<std::size_t>(thread)].sums[0];
  return lines_[static_cast<std::size_t>(thread / kSumsInLine)].sums[thread % kSumsInLine];
  // END LAB 01.9
}

double mae_partial_sums(const Problem& problem, Team& team, PartialSums& sums) {
  // LAB 01.9: false sharing
  // > Each error goes to memory at once: that is what makes neighbours in a line disturb each
  // > other.
  if (sums.threads() != team.size())
    fail(fmt::format("mae_partial_sums: sums for {} threads, a team of {}", sums.threads(),
                     team.size()));
  const double before = sums.total();
  team.run([&](int thread) {
    const auto [begin, end] = chunk(problem.N, thread, team.size());
    std::atomic<double>& sum = sums.of(thread);
    for (std::int64_t i = begin; i < end; ++i) {
      const double error = error_of(problem, i);
      sum.store(sum.load(std::memory_order_relaxed) + error, std::memory_order_relaxed);
    }
  });
  return mean_error(sums.total() - before, problem.N);
  // END LAB 01.9
}

}  // namespace aisc
