// Which pieces of a unit's parameters lie in a part of the flat buffer: the oracle of what shards
// parameters; and such pieces as parts of the whole.
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

// Copies `part` (n), elements begin .. begin + n of this rank's part of a parameter or of its
// state, to their places in the whole (global count), and back. Of one type.
inline void write_part(View whole, ConstView part, const Parameter& p, std::int64_t begin) {
  for (const GlobalRun& run : global_runs(p, {begin, begin + part.count()}))
    part.device().copy(whole.flat(run.global, run.count), part.flat(run.local - begin, run.count));
}

inline void read_part(View part, ConstView whole, const Parameter& p, std::int64_t begin) {
  for (const GlobalRun& run : global_runs(p, {begin, begin + part.count()}))
    part.device().copy(part.flat(run.local - begin, run.count), whole.flat(run.global, run.count));
}

}  // namespace aisc
