// Yours to write; from 10_model_compression/solution/prune.cpp (stub 29c2de953f2f).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
#include "10_model_compression/prune.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "common/core/error.h"
#include "common/core/range.h"

namespace aisc {

void PruneSchedule::validate() const {
  if (!(sparsity >= 0 && sparsity < 1))
    fail(fmt::format("a sparsity of {}: expected a share from 0 to below 1", sparsity));
  if (begin < 0 || begin >= end)
    fail(fmt::format("pruning from step {} to step {}: expected 0 or more, and a later one", begin,
                     end));
  if (rounds < 1 || rounds > end - begin)
    fail(fmt::format("{} rounds of pruning in {} steps: expected 1 to one a step", rounds,
                     end - begin));
}

double sparsity_at(std::int64_t steps, const PruneSchedule& schedule) {
  // LAB 10.6: prune iteratively
  // How many rounds are over, as a whole number, and which share of the weights is still to go?
  throw NotImplemented("lab 10.6: prune iteratively", __FILE__, __LINE__);
  // END LAB 10.6
}

bool can_be_pruned(const Parameter& parameter) {
  return parameter.name.starts_with("blocks.") && parameter.name.ends_with(".weight") &&
         parameter.name.find(".router.") == std::string::npos &&
         parameter.global_shape.rank() == 2 && parameter.sync != Sync::ExpertData;
}

std::vector<std::uint32_t> magnitude_keys(ConstView weights) {
  std::vector<std::uint32_t> keys(index(weights.count()));
  dispatch(weights.dtype(), [&](auto type) {
    const auto* w = weights.data<decltype(type)>();
    for (std::size_t i = 0; i < keys.size(); ++i)
      keys[i] = magnitude_key(static_cast<double>(w[i]));
  });
  return keys;
}

void count_digits(std::span<const std::uint32_t> keys, const ThresholdSearch& search,
                  std::span<std::int64_t> counts) {
  // The digits above the next one, of which there are none at first: a shift by all 32 bits, which
  // C++ does not define for 32 bits, is defined for 64.
  const int above = search.shift + 8;
  const std::uint64_t found = std::uint64_t{search.prefix} >> above;
  // LAB 10.6: prune iteratively
  // A key counts where the digits above its next one are `found`. Its next digit is one of 256.
  throw NotImplemented("lab 10.6: prune iteratively", __FILE__, __LINE__);
  // END LAB 10.6
}

void narrow(ThresholdSearch& search, std::span<const std::int64_t> counts) {
  // LAB 10.6: prune iteratively
  // Which digit do keys have, of which so many are smaller? How many of those that begin so are?
  // Then the next digit is 8 bits further down.
  throw NotImplemented("lab 10.6: prune iteratively", __FILE__, __LINE__);
  // END LAB 10.6
}

std::uint32_t magnitude_threshold(std::span<const std::uint32_t> keys, std::int64_t goes) {
  if (keys.empty()) return 0;
  ThresholdSearch search{.smaller = std::min(goes, std::ssize(keys) - 1)};
  while (search.shift >= 0) {
    std::vector<std::int64_t> counts(kDigits);
    count_digits(keys, search, counts);
    narrow(search, counts);
  }
  return search.prefix;
}

std::int64_t pruned_count(double sparsity, std::int64_t count) {
  return std::llround(sparsity * static_cast<double>(count));
}

void prune_below(std::span<const std::uint32_t> keys, std::uint32_t threshold,
                 std::span<std::uint8_t> kept) {
  // LAB 10.6: prune iteratively
  // What is as large as the threshold stays.
  throw NotImplemented("lab 10.6: prune iteratively", __FILE__, __LINE__);
  // END LAB 10.6
}

void apply_mask(View weights, std::span<const std::uint8_t> kept) {
  dispatch(weights.dtype(), [&](auto type) {
    using T = decltype(type);
    const std::span<T> w = weights.values<T>();
    // LAB 10.6: prune iteratively
    // A zero of this type is T(0.f).
    throw NotImplemented("lab 10.6: prune iteratively", __FILE__, __LINE__);
    // END LAB 10.6
  });
}

double behind_update(std::int64_t steps, const PruneSchedule& schedule, double reached,
                     const std::function<void()>& mask,
                     const std::function<void(double sparsity)>& prune) {
  // LAB 10.6: prune iteratively
  // What has to happen in every step, and what where the schedule has a round?
  throw NotImplemented("lab 10.6: prune iteratively", __FILE__, __LINE__);
  // END LAB 10.6
}

void prune_once(View weights, double sparsity) {
  const std::vector<std::uint32_t> keys = magnitude_keys(weights);
  std::vector<std::uint8_t> kept(keys.size(), 1);
  prune_below(keys, magnitude_threshold(keys, pruned_count(sparsity, weights.count())), kept);
  apply_mask(weights, kept);
}

}  // namespace aisc
