#include "bench/bare_loops.h"

#include <cstring>
#include <span>
#include <thread>

#include "common/core/system/threads.h"

namespace aisc {
namespace {

constexpr std::int64_t kLine = 16;  // elements of a cache line: threads share none
// Elements summed at a time. A short run keeps all ranks' streams flowing side by side; with runs
// of 1 KiB and more the prefetcher starts anew for each, and 8 ranks take twice as long.
constexpr std::int64_t kRun = 64;

void copy(float* to, const float* from, std::int64_t count) {
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
}

// x[i] = y[i] = a[i] + b[i]; x and y may be a and b.
void add_two(const float* a, const float* b, float* x, float* y, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float sum = a[i] + b[i];
    x[i] = sum;
    y[i] = sum;
  }
}

// to[all][to_begin ..] = the sum of from[all][begin ..], `count` elements.
void add(std::span<float* const> from, std::int64_t begin, std::span<float* const> to,
         std::int64_t to_begin, std::int64_t count) {
  if (from.size() == 2)
    return add_two(from[0] + begin, from[1] + begin, to.front() + to_begin, to.back() + to_begin,
                   count);
  float sum[kRun];
  std::int64_t i = 0;
  for (; i + kRun <= count; i += kRun) {
    std::memcpy(sum, from[0] + begin + i, sizeof sum);
    for (const float* in : from.subspan(1))
      for (std::int64_t k = 0; k < kRun; ++k) sum[k] += in[begin + i + k];
    for (float* out : to) std::memcpy(out + to_begin + i, sum, sizeof sum);
  }
  for (; i < count; ++i) {
    float last = from[0][begin + i];
    for (const float* in : from.subspan(1)) last += in[begin + i];
    for (float* out : to) out[to_begin + i] = last;
  }
}

}  // namespace

BareLoops::BareLoops(int ranks, int cores)
    : ranks_(ranks),
      cores_(cores),
      flags_(static_cast<std::size_t>(ranks)),
      ins_(static_cast<std::size_t>(ranks)),
      outs_(static_cast<std::size_t>(ranks)) {}

void BareLoops::set_buffers(int rank, float* in, float* out) {
  ins_[static_cast<std::size_t>(rank)] = in;
  outs_[static_cast<std::size_t>(rank)] = out;
}

void BareLoops::barrier(int rank) {
  std::atomic<long>& mine = flags_[static_cast<std::size_t>(rank)].arrivals;
  const long arrivals = mine.load(std::memory_order_relaxed) + 1;
  mine.store(arrivals, std::memory_order_release);
  for (const Flag& flag : flags_)
    while (flag.arrivals.load(std::memory_order_acquire) < arrivals)
      if (ranks_ <= cores_)
        cpu_pause();
      else
        std::this_thread::yield();
}

BareLoops::Range BareLoops::range_of(int rank, std::int64_t count) const {
  const auto cut = [&](int r) { return r == ranks_ ? count : count / kLine * r / ranks_ * kLine; };
  return {cut(rank), cut(rank + 1)};
}

void BareLoops::run(const CommCase& c, int rank) {
  barrier(rank);
  const std::int64_t chunk = c.chunk();
  const auto mine = static_cast<std::size_t>(rank);
  switch (c.op()) {
    case CommOp::AllReduce: {
      const Range range = range_of(rank, c.count());
      add(outs_, range.begin, outs_, range.begin, range.end - range.begin);
      break;
    }
    case CommOp::ReduceScatter:
      add(ins_, rank * chunk, std::span(outs_).subspan(mine, 1), 0, chunk);
      break;
    case CommOp::AllGather:
      for (int r = 0; r < ranks_; ++r)
        copy(outs_[mine] + r * chunk, ins_[static_cast<std::size_t>(r)], chunk);
      break;
    case CommOp::AllToAll:
      for (int r = 0; r < ranks_; ++r)
        copy(outs_[mine] + r * chunk, ins_[static_cast<std::size_t>(r)] + rank * chunk, chunk);
      break;
    default: {  // broadcast from rank 0
      const Range range = range_of(rank, c.count());
      for (std::size_t r = 1; r < outs_.size(); ++r)
        copy(outs_[r] + range.begin, outs_[0] + range.begin, range.end - range.begin);
    }
  }
  barrier(rank);
}

}  // namespace aisc
