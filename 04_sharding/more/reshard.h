// Shards that move to another number of ranks: a run on 4 ranks goes on with 2.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/comm/communicator.h"
#include "common/nn/flat_layout.h"

namespace aisc {

// The shard of rank r is, unit by unit, layout.shard(u, r); all of them one after another are the
// rank's buffer, of layout.count() / ranks elements. A layout for another number of ranks pads each
// unit to another length and cuts it at other places.
//
// Units of 300 and 70 elements on 2 and on 3 ranks; the numbers are elements of parameters, what
// follows them in a shard is padding:
//
//   2 ranks: shards of 192 and 64         3 ranks: shards of 128 and 64
//     rank 0: 0..191 | 0..63                rank 0: 0..127   | 0..63
//     rank 1: 192..299, padding | 64..69    rank 1: 128..255 | 64..69, padding
//                                           rank 2: 256..299, padding | padding

// `count` elements at `from_begin` of the old buffer of rank `from` are those at `to_begin` of the
// new buffer of rank `to`.
struct Move {
  int from;
  std::int64_t from_begin;
  int to;
  std::int64_t to_begin;
  std::int64_t count;
  bool operator==(const Move&) const = default;
};

// Where every element of every parameter goes, each once; padding goes nowhere. A move is as long
// as possible: it ends where its parameter ends, or the shard that it leaves, or the one that it
// enters. Ordered by parameter, then by position in it. The same on every rank; nothing is sent.
//
// Throws Error if a layout was made for another number of ranks than said; and, naming the unit,
// if the layouts have not the same units, with as many parameters of as many elements.
std::vector<Move> reshard_moves(const FlatLayout& before, int ranks_before, const FlatLayout& after,
                                int ranks_after);

// Carries out `moves`, the same on all ranks, with one exchange. `before` and `after` are this
// rank's buffers, in the same type, and do not overlap; a rank that was no part of the old layout
// passes an empty `before`, one that is no part of the new one an empty `after`. Blocks until all
// is there. Bytes sent per rank: those of the elements that it had and another rank gets, each
// once; what stays on its rank is copied. Elements of `after` that no move reaches (padding) keep
// what they are.
//
// Throws Error if the buffers differ in type, or a move reaches beyond one of them.
void reshard(Communicator& ranks, std::span<const Move> moves, ConstView before, View after);

}  // namespace aisc
