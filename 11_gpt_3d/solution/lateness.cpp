#include "11_gpt_3d/lateness.h"

#include <algorithm>
#include <string>
#include <utility>

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
  // > groups_of, above, has the times at which calls that may meet began. How many of a group's
  // > calls have all of their ranks begun? A group may have ranks that have begun none.
  std::map<int, Lateness> late;
  for (const auto& [call, begins] : groups_of(ranks)) {
    if (begins.size() < call.second.size()) continue;  // a rank has begun none
    std::size_t met = begins.begin()->second.size();
    for (const auto& [rank, all] : begins) met = std::min(met, all.size());
    for (std::size_t i = 0; i < met; ++i) {
      int last = begins.begin()->first;
      for (const auto& [rank, all] : begins)
        if (all[i] > begins.at(last)[i]) last = rank;
      ++late[last].calls;
      for (const auto& [rank, all] : begins) late[last].seconds += begins.at(last)[i] - all[i];
    }
  }
  return late;
  // END LAB 11.7
}

}  // namespace aisc
