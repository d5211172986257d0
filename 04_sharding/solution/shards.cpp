#include "04_sharding/shards.h"

#include <algorithm>

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
    // > units[u].parameters[i] takes places[i] of the flat buffer of all units, your shard takes
    // > `shard` of it. The piece that both have in common, if there is one, is yours. Which element
    // > of the parameter is its first, and which of your own buffer, where the shard begins at
    // > own.begin?
    // Pieces come in the order of the buffer; a shard that begins or ends inside of a parameter has
    // a part of it, one that is padding alone has none.
    for (std::size_t i = 0; i < places.size(); ++i) {
      const std::int64_t begin = std::max(shard.begin, places[i].begin);
      const std::int64_t end = std::min(shard.end, places[i].end);
      if (begin >= end) continue;
      pieces.push_back({.parameter = units[u].parameters[i],
                        .begin = begin - places[i].begin,
                        .count = end - begin,
                        .in_model = begin,
                        .in_shards = own.begin + begin - shard.begin});
    }
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
