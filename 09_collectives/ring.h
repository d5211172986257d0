// All-reduce along a ring: the fewest bytes that are possible, and as many steps as ranks, twice.
#pragma once

#include <span>
#include <vector>

#include "common/comm/plan.h"

namespace aisc {

// All ranks, each once, in the order in which messages pass: ring[i] sends to ring[i + 1], the last
// to the first.
using Ring = std::vector<int>;

// Patarasuk, Yuan 2009. The buffer is cut into p chunks, chunk_of(Out, n, i, p). Position i on the
// ring sends, in step s of the first half, chunk i - s and adds what arrives to chunk i - s - 1; in
// step s of the second half it sends chunk i + 1 - s, complete, and receives chunk i - s into its
// place. Steps: 2 (p - 1). Bytes: 2 n (p - 1) / p each. Seconds: 2 (p - 1) a + 2 n (p - 1) / p b +
// n (p - 1) / p g. Throws Error where `ring` does not hold every rank 0 .. p - 1 once.
Plan ring_all_reduce_along(const Collective& c, int rank, std::span<const int> ring);

// Several rings at once, NCCL's channels: ring k of m carries elements chunk_of(Out, n, k, m). Of a
// buffer that is too short for all rings only the first m = n / p, but at least one, are used, so
// that every chunk has an element. Throws Error where there is no ring, where one does not hold
// every rank once, or where they differ in their ranks; and the plan, where the call's do.
PlanMaker all_reduce_along(std::vector<Ring> rings);

// Ranks in their own order.
Ring natural_ring(int size);

}  // namespace aisc
