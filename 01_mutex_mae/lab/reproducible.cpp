// Yours to write; from 01_mutex_mae/solution/reproducible.cpp (stub 26238b77d033).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
// A sum of floating-point numbers is what its order of additions makes it. Here the order is a tree
// over leaves of fixed length: threads decide who computes a leaf and nothing else.
#include "01_mutex_mae/reproducible.h"

#include <algorithm>
#include <vector>

#include "01_mutex_mae/mae.h"
#include "common/core/error.h"

namespace aisc {

double tree_sum(std::span<double> values) {
  // LAB 01.10: mae_reproducible
  // `values` is yours to write over: no other memory is needed.
  throw NotImplemented("lab 01.10: mae_reproducible", __FILE__, __LINE__);
  // END LAB 01.10
}

double mae_reproducible(const Problem& problem, Team& team) {
  // LAB 01.10: mae_reproducible
  // Threads share the leaves, not the samples: chunk(leaves, ...). The last leaf may be shorter.
  throw NotImplemented("lab 01.10: mae_reproducible", __FILE__, __LINE__);
  // END LAB 01.10
}

}  // namespace aisc
