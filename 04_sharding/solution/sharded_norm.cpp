#include "04_sharding/sharded_norm.h"

#include <cmath>
#include <vector>

#include "common/comm/host_values.h"
#include "common/ops/ops.h"

namespace aisc {

double norm_of_shards(Communicator& ranks, std::span<const ConstView> mine) {
  // LAB 04.5: the norm of all shards
  // > ops::sum_of_squares(x) is a double. Which number of each rank can be added up over the ranks:
  // > its norm, or something else? sum_of_all(ranks, x) adds up one double of each.
  double squares = 0;
  for (const ConstView& gradient : mine) squares += ops::sum_of_squares(gradient);
  return std::sqrt(sum_of_all(ranks, squares));  // comm: 8 bytes, the squares of all ranks' shards
  // END LAB 04.5
}

double norm_of_shards(Communicator& ranks, std::span<const OptimizerSlice> mine,
                      const MeshPlace& place) {
  std::vector<ConstView> counted;
  for (const OptimizerSlice& slice : mine)
    if (counts(*slice.parameter, true, place)) counted.push_back(slice.gradient);
  return norm_of_shards(ranks, counted);
}

}  // namespace aisc
