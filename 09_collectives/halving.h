// Recursive halving and doubling: partners at distance q/2, q/4, ... 1, or the way back. log2 p
// steps, and, since what is sent halves with each, no more bytes than a ring. Where p is not a
// power of two, pairs fold first (fold.h). Thakur, Rabenseifner, Gropp 2005.
#pragma once

#include "common/comm/plan.h"

namespace aisc {

// Rank r receives chunk r of the sum. q ranks go on, each for the chunks of one rank or of a pair;
// in the step of distance d ranks v and v ^ d split the chunks they share, send the other's half,
// add what arrives to their own. p a power of two: L steps, n (p - 1) / p bytes, L a + n (p - 1) /
// p (b + g). Else one step before (a folded rank sends its partner all of n) and one after (gets
// its chunk).
Plan recursive_halving_reduce_scatter(const Collective& c, int rank, int size);

// Blocks of 1, 2, 4, ... ranks swap what they have. p a power of two: L a + n (p - 1) / p b. Else a
// folded rank gives its chunk before, and gets all chunks but its own after; folded ranks first,
// blocks are unequal (cost.h).
Plan recursive_doubling_all_gather(const Collective& c, int rank, int size);

// Rabenseifner 2004: a reduce-scatter by halving over q chunks, then an all-gather by doubling. p a
// power of two: 2 L steps, 2 n (p - 1) / p bytes, 2 L a + 2 n (p - 1) / p b + n (p - 1) / p g. Else
// 2 steps more, of n bytes each: folded ranks send their buffer to their partner before, and get
// the sum after.
Plan rabenseifner_all_reduce(const Collective& c, int rank, int size);

}  // namespace aisc
