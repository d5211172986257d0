// Which pieces of a unit's parameters lie in a part of the flat buffer: the oracle of what shards
// parameters.
#pragma once

#include <algorithm>
#include <vector>

#include "common/optim/optimizer.h"

namespace aisc {

// The slices of a unit that lie in `range` of the flat buffer, a shard of it, whose values and
// gradients these are (range.count()). Padding is in none of them.
inline std::vector<OptimizerSlice> slices_in(const Unit& unit, const FlatUnit& place,
                                             const Range& range, View values, View grads) {
  std::vector<OptimizerSlice> slices;
  for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
    const Parameter& p = *unit.parameters[i];
    const std::int64_t begin = std::max(range.begin, place.parameters[i].begin);
    const std::int64_t count = std::min(range.end, place.parameters[i].end) - begin;
    if (count > 0)
      slices.push_back({p.name, values.flat(begin - range.begin, count),
                        grads.flat(begin - range.begin, count), p.decay, &p,
                        begin - place.parameters[i].begin});
  }
  return slices;
}

}  // namespace aisc
