// What a step in shards will hold and send, told before it runs: by following the schedule, without
// a number or a rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>

#include "04_sharding/sharded_units.h"

namespace aisc {

struct ForecastOptions {
  int ranks = 1;
  std::int64_t micro_batches = 1;
  enum class Loop { OneAfterAnother, Layered } loop = Loop::OneAfterAnother;  // of module 03
  DType values = DType::F32, gradients = DType::F32;
};

// Of one rank and one step. Bytes at rest are those between two steps, of weights and gradients;
// peaks those at the worst moment of a step.
struct Forecast {
  std::int64_t values_at_rest, values_peak, gradients_at_rest, gradients_peak;
  // Elements, over all ranks, that are gathered and that are reduce-scattered: a ring sends
  // (N - 1)/N of each.
  std::int64_t gathered, scattered;

  double sent_bytes(const ForecastOptions& options) const;
};

// The layers in the order in which their backward runs, once for each micro-batch.
inline std::vector<std::size_t> backward_visits(std::size_t layers, const ForecastOptions& of) {
  std::vector<std::size_t> visits;
  const auto m = static_cast<std::size_t>(of.micro_batches);
  for (std::size_t i = 0; i < layers * m; ++i)
    visits.push_back(layers - 1 - (of.loop == ForecastOptions::Loop::Layered ? i / m : i % layers));
  return visits;
}

// Most elements of whole units' gradients at a time: those that layers still add to, and the one
// that is being sent.
inline std::int64_t most_bound(std::span<const LayerUnits> layers,
                               std::span<const std::int64_t> counts, const ForecastOptions& of) {
  std::set<std::size_t> bound;
  std::int64_t elements = 0, sending = 0, most = 0;
  for (const std::size_t layer : backward_visits(layers.size(), of)) {
    if (layer + 1 == layers.size()) sending = 0;
    for (const std::size_t unit : layers[layer].reads)
      if (bound.insert(unit).second) elements += counts[unit];
    most = std::max(most, elements + sending);
    for (const std::size_t unit : layers[layer].completes) {
      sending = counts[unit];
      elements -= counts[unit];
      bound.erase(unit);
    }
  }
  return most;
}

// Elements that a further micro-batch gathers: of a whole pass what its first turn wants and the
// last one before it did not leave; of layered accumulation, which goes from the last layer's
// backward back to its forward, what the latter frees.
inline std::int64_t gathered_again(const GatherSchedule& schedule,
                                   std::span<const std::int64_t> counts,
                                   const ForecastOptions& of) {
  const bool layered = of.loop == ForecastOptions::Loop::Layered;
  const std::size_t middle = schedule.size() / 2;
  const auto& before = layered ? schedule[middle - 1] : schedule.back();
  const auto& after = layered ? schedule[middle] : schedule.front();
  std::int64_t sum = layered ? 0 : gathered(schedule, counts);
  for (const std::size_t unit : after) {
    const bool stays = std::find(before.begin(), before.end(), unit) != before.end();
    if (stays && !layered) sum -= counts[unit];
    if (!stays && layered) sum += counts[unit];
  }
  return sum;
}

inline double Forecast::sent_bytes(const ForecastOptions& of) const {
  const double share = static_cast<double>(of.ranks - 1) / of.ranks;
  return share * (static_cast<double>(gathered) * static_cast<double>(size_of(of.values)) +
                  static_cast<double>(scattered) * static_cast<double>(size_of(of.gradients)));
}

// Of ShardedUnits with these options (bucket 0) over the layers of a model in a flat layout of
// `ranks`. The optimizer's bytes are the optimizer's own affair. Throws Error as gather_schedule.
inline Forecast forecast(const Model& model, const ShardOptions& options,
                         const ForecastOptions& of) {
  const std::vector<Unit> units = make_units(model);
  const FlatLayout layout(units, of.ranks);
  const std::vector<LayerUnits> layers = layer_units(model, units);
  std::vector<std::int64_t> counts;
  for (const FlatUnit& unit : layout.units()) counts.push_back(unit.range.count());
  const auto value = static_cast<std::int64_t>(size_of(of.values));
  const auto gradient = static_cast<std::int64_t>(size_of(of.gradients));
  const std::int64_t psi = layout.count(), shard = psi / of.ranks;
  Forecast all{.values_at_rest = value * psi,
               .values_peak = value * psi,
               .gradients_at_rest = gradient * psi,
               .gradients_peak = gradient * psi,
               .gathered = psi,
               .scattered = psi};
  if (options.stage == 1) return all;
  all.gradients_at_rest = gradient * shard;
  all.gradients_peak = gradient * (shard + most_bound(layers, counts, of));
  all.scattered = of.micro_batches * psi;
  if (options.stage == 2) return all;
  const GatherSchedule schedule =
      gather_schedule(layers, counts, options.gather, Turns::ForwardAndBackward);
  std::int64_t persistent = 0;
  for (const std::int64_t count : counts)
    if (count <= options.gather.persist) persistent += count;
  all.values_at_rest = value * (shard + persistent);
  all.values_peak = value * (shard + persistent + most_live(schedule, counts));
  all.gathered = persistent + gathered(schedule, counts) +
                 (of.micro_batches - 1) * gathered_again(schedule, counts, of);
  return all;
}

}  // namespace aisc
