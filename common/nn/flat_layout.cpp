#include "common/nn/flat_layout.h"

#include <set>

#include "common/core/error.h"

namespace aisc {
namespace {

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace

FlatLayout::FlatLayout(std::span<const Unit> units, int ranks) : ranks_(ranks) {
  if (ranks < 1) fail("FlatLayout: ranks is " + std::to_string(ranks) + ", expected 1 or more");
  std::set<const Parameter*> seen;
  for (const Unit& unit : units) {
    FlatUnit flat{unit.name, {count_, count_}, {}};
    for (const Parameter* p : unit.parameters) {
      if (!seen.insert(p).second) fail("FlatLayout: parameter " + p->name + " appears twice");
      flat.parameters.push_back({flat.range.end, flat.range.end + p->shape.count()});
      flat.range.end = round_up(flat.parameters.back().end, kAlignment);
    }
    flat.range.end = count_ + round_up(flat.range.count(), kAlignment * ranks);
    count_ = flat.range.end;
    units_.push_back(std::move(flat));
  }
}

Range FlatLayout::shard(std::size_t unit, int rank) const {
  if (rank < 0 || rank >= ranks_)
    fail("FlatLayout: rank " + std::to_string(rank) + " of " + std::to_string(ranks_));
  const Range& range = units_.at(unit).range;
  const std::int64_t part = range.count() / ranks_;
  return {range.begin + rank * part, range.begin + (rank + 1) * part};
}

}  // namespace aisc
