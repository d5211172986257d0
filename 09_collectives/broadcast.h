// Broadcasts of long buffers: cut into pieces, so that all links work at the same time.
#pragma once

#include "common/comm/network.h"
#include "common/comm/plan.h"

namespace aisc {

// Rank v (counted from the root) passes each of k segments, chunk_of(Out, n, s, k), on to v + 1
// while it receives the next. Steps: p - 2 + k until the last rank has all; a rank in the middle
// takes part in k + 1 of them. Bytes: n. Seconds: (p - 2 + k) (a + n / k b). Throws Error for k
// < 1.
Plan chain_broadcast(const Collective& c, int rank, int size, int segments);

// The k >= 1 for which that is shortest: sqrt((p - 2) n b / a), of the two whole numbers around it
// the one with the shorter time (the smaller where both take the same); 1 where p < 3 or n b = 0,
// and never more than `most`, nor than one per byte. Where a = 0: as many as these limits allow.
int best_segments(int ranks, double bytes, const Link& link, int most = 1 << 20);

// van de Geijn (Barnett et al. 1994): a binomial scatter of p chunks, then a ring all-gather.
// Steps: root L + p - 1. Seconds: (L + p - 1) a + 2 n (p - 1) / p b. The root, which has all,
// receives nothing in the ring.
Plan van_de_geijn_broadcast(const Collective& c, int rank, int size);

}  // namespace aisc
