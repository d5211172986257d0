#include "11_gpt_3d/waits.h"

#include <algorithm>
#include <cstddef>
#include <set>

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
// > A function that several of the three below need can stand here.
namespace {

// What `call`, which `self` has begun, meets on another rank; nullptr: that has not come.
const TracedCall* met_by(const TracedCall& call, const TracedRank& self, const TracedRank& other) {
  const auto meets = [&](const TracedCall& c) {
    return c.communicator == call.communicator && c.ranks == call.ranks;
  };
  // It is the so manieth of its kind: those behind it do not count.
  const auto behind = self.calls.begin() + (&call - self.calls.data()) + 1;
  auto number = std::count_if(self.calls.begin(), behind, meets);
  for (const TracedCall& c : other.calls) {
    const bool died_inside = other.ended && !c.end_seconds;
    if (meets(c) && --number == 0) return died_inside ? nullptr : &c;
  }
  return nullptr;
}

}  // namespace
// END LAB 11.6

std::vector<int> waits_for(const std::vector<TracedRank>& ranks, int rank) {
  // LAB 11.6: which rank waits for which
  // > open_call() above is where this rank is. How many calls that are like it has it begun? And
  // > how many has each other rank of it?
  const TracedCall* const call = open_call(at(ranks, rank));
  std::vector<int> missing;
  if (!call) return missing;
  for (const int other : call->ranks)
    if (!met_by(*call, at(ranks, rank), at(ranks, other))) missing.push_back(other);
  return missing;
  // END LAB 11.6
}

bool mismatched(const std::vector<TracedRank>& ranks, int rank) {
  // LAB 11.6: which rank waits for which
  // > Of the calls that this rank's call meets: is one of another operation?
  const TracedCall* const call = open_call(at(ranks, rank));
  return call && std::any_of(call->ranks.begin(), call->ranks.end(), [&](int other) {
           const TracedCall* met = met_by(*call, at(ranks, rank), at(ranks, other));
           return met && met->op != call->op;
         });
  // END LAB 11.6
}

std::vector<int> causes(const std::vector<TracedRank>& ranks) {
  // LAB 11.6: which rank waits for which
  // > waits_for() of all ranks are arrows. From which ranks does no arrow go on? Which ranks come
  // > back to themselves along arrows?
  std::vector<std::vector<int>> waits;
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank)
    waits.push_back(waits_for(ranks, rank));
  const auto arrows = [&](int rank) { return waits[static_cast<std::size_t>(rank)]; };
  std::set<int> found;
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
    if (mismatched(ranks, rank)) found.insert(rank);
    std::set<int> reached;
    for (std::vector<int> next = arrows(rank); !next.empty();) {
      const int other = next.back();
      next.pop_back();
      if (!reached.insert(other).second) continue;
      if (arrows(other).empty()) found.insert(other);
      for (const int further : arrows(other)) next.push_back(further);
    }
    if (reached.count(rank) > 0) found.insert(rank);
  }
  return {found.begin(), found.end()};
  // END LAB 11.6
}

}  // namespace aisc
