// Yours to write; from 11_gpt_3d/solution/waits.cpp (stub 86d9b9fd10ba).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
#include "11_gpt_3d/waits.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "common/core/error.h"

namespace aisc {
namespace {

const TracedRank& at(const std::vector<TracedRank>& ranks, int rank) {
  return ranks.at(static_cast<std::size_t>(rank));
}

// The call in which a rank is; nullptr: it computes, or has ended.
const TracedCall* open_call(const TracedRank& rank) {
  if (rank.ended) return nullptr;
  const auto open = std::find_if(rank.calls.begin(), rank.calls.end(),
                                 [](const TracedCall& call) { return !call.end_seconds; });
  return open == rank.calls.end() ? nullptr : &*open;
}

}  // namespace

// LAB 11.6: which rank waits for which
// A function that several of the three below need can stand here.
// END LAB 11.6

std::vector<int> waits_for(const std::vector<TracedRank>& ranks, int rank) {
  // LAB 11.6: which rank waits for which
  // open_call() above is where this rank is. How many calls that are like it has it begun? And
  // how many has each other rank of it?
  throw NotImplemented("lab 11.6: which rank waits for which", __FILE__, __LINE__);
  // END LAB 11.6
}

bool mismatched(const std::vector<TracedRank>& ranks, int rank) {
  // LAB 11.6: which rank waits for which
  // Of the calls that this rank's call meets: is one of another operation?
  throw NotImplemented("lab 11.6: which rank waits for which", __FILE__, __LINE__);
  // END LAB 11.6
}

std::vector<int> causes(const std::vector<TracedRank>& ranks) {
  // LAB 11.6: which rank waits for which
  // waits_for() of all ranks are arrows. From which ranks does no arrow go on? Which ranks come
  // back to themselves along arrows?
  throw NotImplemented("lab 11.6: which rank waits for which", __FILE__, __LINE__);
  // END LAB 11.6
}

}  // namespace aisc
