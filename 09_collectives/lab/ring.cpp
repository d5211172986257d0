// Yours to write; from 09_collectives/solution/ring.cpp (stub ec4b3c743cd7).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
// The ring all-reduce over ranks in any order, and several such rings side by side.
#include "09_collectives/ring.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "09_collectives/compose.h"
#include "common/core/error.h"

namespace aisc {
namespace {

// Throws Error where `ring` does not hold each rank once.
void check_ring(std::span<const int> ring) {
  if (ring.empty()) fail("ring: no ranks, at least 1 expected");
  const int ranks = static_cast<int>(ring.size());
  std::vector<int> times(ring.size());
  for (const int rank : ring) {
    if (rank < 0 || rank >= ranks)
      fail(fmt::format("ring of {}: rank {} is not one of [0, {})", ranks, rank, ranks));
    if (++times[static_cast<std::size_t>(rank)] > 1)
      fail(fmt::format("ring of {}: rank {} is there twice", ranks, rank));
  }
}

}  // namespace

Plan ring_all_reduce_along(const Collective& c, int rank, std::span<const int> ring) {
  // LAB 09.3: ring_all_reduce_along
  // check_ring first. Where on the ring does this rank stand? From there on positions count, not
  // ranks, and a rank's chunks follow from its position, too. No piece of Out may be sent and
  // received into in the same step.
  throw NotImplemented("lab 09.3: ring_all_reduce_along", __FILE__, __LINE__);
  // END LAB 09.3
}

PlanMaker all_reduce_along(std::vector<Ring> rings) {
  if (rings.empty()) fail("all_reduce_along: no rings, at least 1 expected");
  for (const Ring& ring : rings) {
    check_ring(ring);
    if (ring.size() != rings[0].size())
      fail(fmt::format("all_reduce_along: rings of {} and of {} ranks", rings[0].size(),
                       ring.size()));
  }
  return [rings = std::move(rings)](const Collective& c, int rank, int size) {
    if (static_cast<int>(rings[0].size()) != size)
      fail(fmt::format("all_reduce_along: rings of {} ranks, the call is of {}", rings[0].size(),
                       size));
    // An empty chunk is no message, and a step without messages is none: plans whose steps are not
    // the same would mix up their messages.
    const std::int64_t count = c.call.count;
    const auto most = static_cast<std::int64_t>(rings.size());
    const int m = static_cast<int>(std::clamp(count / size, std::int64_t{1}, most));
    std::vector<Plan> plans;
    for (int k = 0; k < m; ++k) {
      const Piece part = chunk_of(Piece::Where::Out, count, k, m);
      Collective on_part;
      on_part.call = c.call;
      on_part.call.count = part.count;
      const Ring& ring = rings[static_cast<std::size_t>(k)];
      plans.push_back(moved(ring_all_reduce_along(on_part, rank, ring), part.begin));
    }
    return side_by_side("all_reduce along rings", plans);
  };
}

Ring natural_ring(int size) {
  Ring ring(static_cast<std::size_t>(size));
  std::iota(ring.begin(), ring.end(), 0);
  return ring;
}

}  // namespace aisc
