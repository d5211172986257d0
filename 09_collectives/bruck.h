// Any number of ranks in ceil(log2 p) steps, by counting round. Bruck, Ho, Kipnis, Upfal,
// Weathersby 1997.
#pragma once

#include "common/comm/plan.h"

namespace aisc {

// In the step of distance d = 1, 2, 4, ... rank r holds chunks r, r + 1, ..., r + d - 1 (counted
// round), sends those that rank r - d lacks, at most d, and receives as many from rank r + d. The
// chunks come together in scratch, in the order of r, and are turned into their places at the end
// (copies are free). Steps: L. Bytes: n (p - 1) / p. Seconds: L a + n (p - 1) / p b.
Plan bruck_all_gather(const Collective& c, int rank, int size);

// Chunk i of the turned buffer is for rank r + i. In the step of distance d all chunks whose number
// has the bit d are packed into one message for rank r + d; what has arrived takes their places. A
// chunk moves as often as its number has ones. Steps: L, after one that only packs. Bytes: n / p
// for each one of each number below p, n / 2 L where p is a power of two. Seconds: those bytes b
// and L a. Only for equal counts: throws Error where the call is an all_to_all_v.
Plan bruck_all_to_all(const Collective& c, int rank, int size);

}  // namespace aisc
