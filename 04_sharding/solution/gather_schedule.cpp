#include "04_sharding/gather_schedule.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/core/error.h"

namespace aisc {
namespace {

using UnitList = std::vector<std::size_t>;

bool contains(const UnitList& list, std::size_t unit) {
  return std::find(list.begin(), list.end(), unit) != list.end();
}

std::int64_t elements(const UnitList& list, std::span<const std::int64_t> counts) {
  std::int64_t sum = 0;
  for (const std::size_t unit : list) sum += counts[unit];
  return sum;
}

// The units that each turn reads, without those that are always whole.
std::vector<UnitList> reads_by_turn(std::span<const LayerUnits> layers,
                                    std::span<const std::int64_t> counts, std::int64_t persist,
                                    Turns turns) {
  std::vector<UnitList> reads;
  for (const LayerUnits& layer : layers) {
    reads.emplace_back();
    for (const std::size_t unit : layer.reads)
      if (counts[unit] > persist) reads.back().push_back(unit);
  }
  if (turns == Turns::ForwardAndBackward)
    for (std::size_t i = layers.size(); i-- > 0;) reads.push_back(UnitList(reads[i]));
  return reads;
}

// Elements of the units, each once, that the turns after `turn` use before they use `unit`; kAll if
// none does.
std::int64_t distance(const std::vector<UnitList>& reads, std::size_t turn, std::size_t unit,
                      std::span<const std::int64_t> counts) {
  UnitList between;
  // Up to the next turn that uses the unit: `between` are the units that are used before.
  for (std::size_t next = turn + 1; next < reads.size(); ++next) {
    if (contains(reads[next], unit)) return elements(between, counts);
    for (const std::size_t other : reads[next])
      if (!contains(between, other)) between.push_back(other);
  }
  return GatherOptions::kAll;
}

bool is_used_after(const std::vector<UnitList>& reads, std::size_t turn, std::size_t unit) {
  return std::any_of(reads.begin() + static_cast<std::ptrdiff_t>(turn) + 1, reads.end(),
                     [&](const UnitList& list) { return contains(list, unit); });
}

// The units of the next `layers` turns that read any, each once, in their order.
UnitList next_units(const std::vector<UnitList>& reads, std::size_t turn, int layers) {
  UnitList next;
  // Turns that read nothing, a dropout's, are no layers to look ahead to.
  for (std::size_t t = turn + 1; t < reads.size() && layers > 0; ++t) {
    if (reads[t].empty()) continue;
    --layers;
    for (const std::size_t unit : reads[t])
      if (!contains(next, unit)) next.push_back(unit);
  }
  return next;
}

// What is whole in `turn`, after `before` was.
UnitList whole_units(const std::vector<UnitList>& reads, std::size_t turn, const UnitList& before,
                     std::span<const std::int64_t> counts, const GatherOptions& options) {
  UnitList whole = reads[turn];
  // LAB 04.4: prefetch
  // > Behind the layer's own units come the two other groups that gather_schedule.h names; no unit
  // > is in the list twice. The helpers above answer what the rules ask: elements(), contains(),
  // > next_units(), is_used_after() and distance().
  const auto fits = [&](std::size_t unit) {
    return counts[unit] <= options.live - elements(whole, counts);
  };
  for (const std::size_t unit : next_units(reads, turn, options.prefetch)) {
    if (contains(whole, unit)) continue;
    if (!fits(unit)) break;
    whole.push_back(unit);
  }
  for (const std::size_t unit : before)
    if (!contains(whole, unit) && is_used_after(reads, turn, unit) &&
        distance(reads, turn, unit, counts) <= options.reuse && fits(unit))
      whole.push_back(unit);
  return whole;
  // END LAB 04.4
}

}  // namespace

void GatherOptions::validate() const {
  const auto require = [](const char* what, std::int64_t value) {
    if (value < 0) fail(fmt::format("sharding: {} is {}, expected 0 or more", what, value));
  };
  require("prefetch", prefetch);
  require("live", live);
  require("reuse", reuse);
  require("persist", persist);
}

GatherSchedule gather_schedule(std::span<const LayerUnits> layers,
                               std::span<const std::int64_t> counts, const GatherOptions& options,
                               Turns turns) {
  options.validate();
  const std::vector<UnitList> reads = reads_by_turn(layers, counts, options.persist, turns);
  GatherSchedule schedule;
  // Each turn's list follows from the one before it, so that all ranks come to the same lists.
  for (std::size_t turn = 0; turn < reads.size(); ++turn) {
    if (const std::int64_t own = elements(reads[turn], counts); own > options.live)
      fail(
          fmt::format("sharding: layer {} reads {} elements at once, live is {}: expected at "
                      "least as many",
                      std::min(turn, 2 * layers.size() - 1 - turn), own, options.live));
    schedule.push_back(
        whole_units(reads, turn, turn > 0 ? schedule.back() : UnitList(), counts, options));
  }
  return schedule;
}

}  // namespace aisc
