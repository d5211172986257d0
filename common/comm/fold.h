// The number of ranks a power of two, where partners are found by halving or doubling distances.
#pragma once

#include <bit>

namespace aisc {

// Of p ranks, q <= p < 2q, the first 2 (p - q) pair up; the odd one of each pair goes on for both,
// so that q ranks go on, numbered v = 0 .. q - 1, a power of two.
struct Fold {
  Fold(int rank, int size)
      : q(static_cast<int>(std::bit_floor(static_cast<unsigned>(size)))),
        pairs(size - q),
        paired(rank < 2 * pairs),
        goes_on(!paired || rank % 2 == 1),
        partner(paired ? rank ^ 1 : -1),
        v(paired ? rank / 2 : rank - pairs) {}

  int q;
  int pairs;     // p - q
  bool paired;   // this rank is one of a pair
  bool goes_on;  // false: its partner does
  int partner;   // of a pair
  int v;         // this rank's number among the q, or its partner's
  int rank_of(int w) const { return w < pairs ? 2 * w + 1 : w + pairs; }
};

}  // namespace aisc
