#include "common/comm/backend/diagnose.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace aisc {
namespace {

constexpr std::size_t kMostNamed = 8;

// "barrier #12", "recv(4 x F32) from 3": messages are not numbered.
std::string numbered(const PlacedCall& call) {
  return is_message(call.call) ? to_string(call.call)
                               : fmt::format("{} #{}", to_string(call.call), call.sequence);
}

bool waits(const RankObserver& ranks, int rank) { return ranks.status(rank).waits_in.has_value(); }

std::string what_did(const RankStatus& it) {
  if (!it.answers) return "it does not answer";
  const std::string did = it.finished ? "it has returned; " : "";
  if (!it.last_call) return did + "it has called nothing";
  return fmt::format("{}its last call was {}", did, to_string(*it.last_call));
}

// Follows "waits for" from rank to rank, each time to the lowest that itself waits, until a rank
// comes again: the ranks from there on wait for each other. Empty where the walk ends.
std::string cycle_from(const RankObserver& ranks, int rank) {
  std::vector<int> path{rank};
  for (;;) {
    int next = -1;
    for (const int r : ranks.missing(path.back()))
      if (next < 0 && waits(ranks, r)) next = r;
    if (next < 0) return {};
    const auto again = std::find(path.begin(), path.end(), next);
    if (again == path.end()) {
      path.push_back(next);
      continue;
    }
    std::string text;
    for (auto r = again; r != path.end(); ++r)
      text += fmt::format("{}rank {} in {} on {}", text.empty() ? "" : ", ", *r,
                          numbered(*ranks.status(*r).waits_in),
                          ranks.status(*r).waits_in->communicator);
    return text;
  }
}

// Ranks that are missing because they wait for others are not to blame: the blame goes on to those.
int blame_from(const RankObserver& ranks, int rank, std::vector<int>& missing) {
  missing = ranks.missing(rank);
  for (int steps = 0; steps < ranks.size() && !missing.empty(); ++steps) {
    std::vector<int> idle;
    std::copy_if(missing.begin(), missing.end(), std::back_inserter(idle),
                 [&](int r) { return !waits(ranks, r); });
    if (!idle.empty()) {
      missing = idle;
      return rank;
    }
    rank = missing.front();
    missing = ranks.missing(rank);
  }
  if (!missing.empty()) return rank;
  for (int r = 0; r < ranks.size(); ++r)  // virtual time: somebody has yet to wait
    if (!waits(ranks, r) && !ranks.status(r).finished) missing.push_back(r);
  return rank;
}

}  // namespace

std::string to_string(const PlacedCall& call) {
  return fmt::format("{} on {}", numbered(call), call.communicator);
}

std::string diagnose(const RankObserver& ranks, int rank, double waited_seconds) {
  const std::string waited =
      waited_seconds > 0 ? fmt::format(" after {:.1f} s", waited_seconds) : "";
  const std::string cycle = cycle_from(ranks, rank);
  if (!cycle.empty())
    return fmt::format("{}: ranks wait for each other in a cycle{}: {}",
                       ranks.status(rank).waits_in->communicator, waited, cycle);
  std::vector<int> missing;
  rank = blame_from(ranks, rank, missing);
  const PlacedCall what = *ranks.status(rank).waits_in;
  std::string text = fmt::format("{}: ", what.communicator);
  if (missing.empty())
    return text + fmt::format("rank {} waits in {}{}, though no rank is missing", rank,
                              numbered(what), waited);
  for (std::size_t i = 0; i < missing.size() && i < kMostNamed; ++i)
    text += fmt::format(
        "{}rank {} has not {}{}{}; {}", i == 0 ? "" : ". ", missing[i],
        is_message(what.call) ? "met rank " + std::to_string(rank) + "'s " : "arrived at ",
        numbered(what), waited, what_did(ranks.status(missing[i])));
  if (missing.size() > kMostNamed)
    text += fmt::format(". {} more are missing", missing.size() - kMostNamed);
  return text;
}

}  // namespace aisc
