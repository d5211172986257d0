// Yours to write; from 11_gpt_3d/solution/lateness.cpp (stub 1194e64c2b8f).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
#include "11_gpt_3d/lateness.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/core/error.h"

namespace aisc {
namespace {

// When each rank began its calls of one communicator and the same ranks: by rank, in their order.
using Begins = std::map<int, std::vector<double>>;

// By communicator and ranks.
std::map<std::pair<std::string, std::vector<int>>, Begins> groups_of(
    const std::vector<TracedRank>& ranks) {
  std::map<std::pair<std::string, std::vector<int>>, Begins> groups;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    for (const TracedCall& call : ranks[rank].calls)
      groups[{call.communicator, call.ranks}][static_cast<int>(rank)].push_back(call.begin_seconds);
  return groups;
}

}  // namespace

std::map<int, Lateness> lateness(const std::vector<TracedRank>& ranks) {
  // LAB 11.7: who came last
  // groups_of, above, has the times at which calls that may meet began. How many of a group's
  // calls have all of their ranks begun? A group may have ranks that have begun none.
  throw NotImplemented("lab 11.7: who came last", __FILE__, __LINE__);
  // END LAB 11.7
}

}  // namespace aisc
