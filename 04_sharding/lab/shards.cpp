// Yours to write; from 04_sharding/solution/shards.cpp (stub a44cd7adbdcc).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
#include "04_sharding/shards.h"

#include <algorithm>

#include "common/core/error.h"

namespace aisc {

Range own_range(const FlatLayout& layout, std::size_t unit, int ranks) {
  const Range& whole = layout.units().at(unit).range;
  return {whole.begin / ranks, whole.end / ranks};
}

std::vector<ShardPiece> shard_pieces(const std::vector<Unit>& units, const FlatLayout& layout,
                                     int rank, int ranks) {
  std::vector<ShardPiece> pieces;
  for (std::size_t u = 0; u < units.size(); ++u) {
    const std::vector<Range>& places = layout.units()[u].parameters;
    const Range shard = layout.shard(u, rank), own = own_range(layout, u, ranks);
    // LAB 04.1: what lies in a shard
    // units[u].parameters[i] takes places[i] of the flat buffer of all units, your shard takes
    // `shard` of it. The piece that both have in common, if there is one, is yours. Which element
    // of the parameter is its first, and which of your own buffer, where the shard begins at
    // own.begin?
    throw NotImplemented("lab 04.1: what lies in a shard", __FILE__, __LINE__);
    // END LAB 04.1
  }
  return pieces;
}

OptimizerSlice slice_of(const ShardPiece& piece, View weight, View gradient) {
  return {.name = piece.parameter->name,
          .weight = weight,
          .gradient = gradient,
          .decay = piece.parameter->decay,
          .parameter = piece.parameter,
          .begin = piece.begin};
}

}  // namespace aisc
