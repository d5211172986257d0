// What a rank keeps of a model that is divided over ranks: an equal part of every unit, whatever
// parameters lie in it (FSDP's flat parameter; ZeRO, section 5).
#pragma once

#include <cstdint>
#include <vector>

#include "common/nn/flat_layout.h"
#include "common/optim/optimizer.h"

namespace aisc {

// A run of one parameter that lies in a rank's shard.
struct ShardPiece {
  const Parameter* parameter;
  std::int64_t begin, count;  // elements begin .. begin + count of the parameter
  std::int64_t in_model;      // where the run begins in the flat buffer of all units
  std::int64_t in_shards;     // and in the rank's own: its shards of all units, one after the other
};

// The pieces of all units in the shards of `rank` of `ranks`, in the order of the flat buffer.
// Padding is in none of them. The layout is these units', padded for so many ranks.
std::vector<ShardPiece> shard_pieces(const std::vector<Unit>& units, const FlatLayout& layout,
                                     int rank, int ranks);
// As an optimizer has it, (count): wherever its weights and gradients lie.
OptimizerSlice slice_of(const ShardPiece& piece, View weight, View gradient);

// Where a rank's shard of a unit lies in the buffer of its shards: unit.range.begin / ranks, since
// every unit before it divides evenly.
Range own_range(const FlatLayout& layout, std::size_t unit, int ranks);

}  // namespace aisc
