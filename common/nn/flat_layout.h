// How the parameters of a model lie in one flat buffer: units in forward order, each aligned and
// padded so that it splits evenly over the ranks. DDP's buckets, ZeRO's shards and checkpoints
// share this layout; they differ only in what they keep of it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/nn/parameter.h"

namespace aisc {

struct FlatUnit {
  std::string name;
  Range range;                    // padding included
  std::vector<Range> parameters;  // in the unit's order, without padding
};

class FlatLayout {
 public:
  // Every parameter begins at a multiple of `kAlignment` elements, a cache line in every type.
  static constexpr std::int64_t kAlignment = 64;

  // Throws Error if ranks < 1 or a parameter appears twice (tied weights are one parameter).
  explicit FlatLayout(std::span<const Unit> units, int ranks = 1);

  const std::vector<FlatUnit>& units() const { return units_; }
  std::int64_t count() const { return count_; }  // elements, padding included
  // The part of a unit that `rank` of `ranks` keeps under sharding: equal parts, aligned.
  Range shard(std::size_t unit, int rank) const;

 private:
  int ranks_;
  std::int64_t count_ = 0;
  std::vector<FlatUnit> units_;
};

}  // namespace aisc
