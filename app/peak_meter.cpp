#include "app/peak_meter.h"

#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/host_values.h"
#include "common/core/system/machine.h"
#include "common/ops/product_rate.h"

namespace aisc {
namespace {

constexpr auto kAboutASlice = std::chrono::milliseconds(8);

// The same number for ranks that share their cores: one host, and the same cores of it.
std::int64_t whose_cores() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  std::string text = host.data();
  for (const int core : usable_cores()) text.append(" ").append(std::to_string(core));
  return static_cast<std::int64_t>(std::hash<std::string>()(text));
}

}  // namespace

PeakMeter::PeakMeter(const Rank& rank, DType dtype, double given)
    : rank_(rank), arithmetic_(dtype), flops_(given) {
  const std::array<std::int64_t, 2> mine{whose_cores(), omp_get_max_threads()};
  const auto ranks = static_cast<std::size_t>(rank.world.size());
  const auto all = all_numbers(rank.world, mine);  // comm: who shares cores with whom
  std::int64_t first = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    threads_ += static_cast<int>(all[2 * r + 1]);
    if (r < static_cast<std::size_t>(rank.world.rank()) && all[2 * r] == mine[0])
      first += all[2 * r + 1];
  }
  const std::int64_t cores = available_cores();
  first_core_ = static_cast<int>(std::min(first, cores));
  measuring_ = static_cast<int>(std::min(mine[1], cores - first_core_));
  const bool on_gpu = gpu_facts(rank.device).has_value();
  only_once_ = on_gpu || given > 0;
  if (given > 0) return;
  if (on_gpu) {
    const PeakSlice gpu{measure_product_rate(rank.device, dtype), 0};
    flops_ = sum_of_all(rank.world, gpu.flops_per_second);  // comm: 8 bytes
    return;
  }
  arithmetic_ = product_arithmetic(dtype);
  flops_ = settled_peak([this] { return slice(); }).flops();
}

void PeakMeter::measure_again() {
  if (!only_once_) flops_ = std::max(flops_, slice().flops_per_second);
}

// Ranks have different cores, so their rates add up, whether or not they begin at the same moment.
PeakSlice PeakMeter::slice() const {
  const double begin = rank_.clock.now();
  rank_.world.barrier();  // comm: nobody computes any more where another measures
  PeakSlice mine;
  if (measuring_ > 0)
    mine = measure_peak_slice(arithmetic_, measuring_, first_core_);
  else
    std::this_thread::sleep_for(kAboutASlice);  // and does not wait on a core that is measured
  double sums[] = {mine.flops_per_second, rank_.clock.now() - begin};
  sum_of_all(rank_.world, sums);  // comm: 16 bytes
  return {sums[0], sums[1] / rank_.world.size()};
}

}  // namespace aisc
