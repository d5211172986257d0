// What to say about ranks that wait for too long: who is missing, and what it did instead.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "common/comm/thread/world.h"

namespace aisc::thread {
namespace {

bool is_message(CommOp op) {
  return op == CommOp::Send || op == CommOp::Recv || op == CommOp::Exchange;
}

// "barrier #12", "recv(4 x F32) from 3": messages are not numbered.
std::string numbered(const Call& call, std::uint64_t sequence) {
  return is_message(call.op) ? to_string(call) : fmt::format("{} #{}", to_string(call), sequence);
}

}  // namespace

std::string World::what_did(int rank) const {
  const RankState& it = *ranks_[static_cast<std::size_t>(rank)];
  const std::string* communicator = it.last_communicator.load();
  const std::string did = it.finished ? "it has returned; " : "";
  if (!communicator) return did + "it has called nothing";
  const Call call{it.last_op.load(), it.last_count.load(), it.last_dtype.load(),
                  it.last_reduce.load(), it.last_peer.load()};
  return fmt::format("{}its last call was {} on {}", did, numbered(call, it.last_sequence.load()),
                     *communicator);
}

std::vector<int> World::missing_of(int rank) const {
  std::vector<int> ranks;
  for (const Waitable* what : ranks_[static_cast<std::size_t>(rank)]->waits_for)
    if (!what->over()) {
      const std::vector<int> more = what->missing();
      ranks.insert(ranks.end(), more.begin(), more.end());
    }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

// Follows "waits for" from rank to rank, each time to the lowest that itself waits, until a rank
// comes again: the ranks from there on wait for each other. Empty where the walk ends.
std::string World::cycle_from(int rank) const {
  std::vector<int> path{rank};
  for (;;) {
    int next = -1;
    for (const int r : missing_of(path.back()))
      if (next < 0 && !ranks_[static_cast<std::size_t>(r)]->waits_for.empty()) next = r;
    if (next < 0) return {};
    const auto again = std::find(path.begin(), path.end(), next);
    if (again == path.end()) {
      path.push_back(next);
      continue;
    }
    std::string text;
    for (auto r = again; r != path.end(); ++r) {
      const Waitable& what = *ranks_[static_cast<std::size_t>(*r)]->waits_for.front();
      text += fmt::format("{}rank {} in {} on {}", text.empty() ? "" : ", ", *r,
                          numbered(what.call, what.place.sequence), *what.place.communicator);
    }
    return text;
  }
}

// Ranks that are missing because they wait for others are not to blame: the blame goes on to those.
int World::blame_from(int rank, std::vector<int>& missing) const {
  const auto waits = [this](int r) {
    return !ranks_[static_cast<std::size_t>(r)]->waits_for.empty();
  };
  missing = missing_of(rank);
  for (std::size_t steps = 0; steps < ranks_.size() && !missing.empty(); ++steps) {
    std::vector<int> idle;
    std::copy_if(missing.begin(), missing.end(), std::back_inserter(idle),
                 [&](int r) { return !waits(r); });
    if (!idle.empty()) {
      missing = idle;
      return rank;
    }
    rank = missing.front();
    missing = missing_of(rank);
  }
  if (!missing.empty()) return rank;
  for (std::size_t r = 0; r < ranks_.size(); ++r)  // virtual time: somebody has yet to wait
    if (!waits(static_cast<int>(r)) && !ranks_[r]->finished) missing.push_back(static_cast<int>(r));
  return rank;
}

std::string World::diagnose(int rank, double waited_seconds) const {
  const std::string waited =
      waited_seconds > 0 ? fmt::format(" after {:.1f} s", waited_seconds) : "";
  const auto waiting_in = [this](int r) -> const Waitable& {
    return *ranks_[static_cast<std::size_t>(r)]->waits_for.front();
  };
  const std::string cycle = cycle_from(rank);
  if (!cycle.empty())
    return fmt::format("{}: ranks wait for each other in a cycle{}: {}",
                       *waiting_in(rank).place.communicator, waited, cycle);
  std::vector<int> missing;
  rank = blame_from(rank, missing);
  const Waitable& what = waiting_in(rank);
  std::string text = fmt::format("{}: ", *what.place.communicator);
  if (missing.empty())
    return text + fmt::format("rank {} waits in {}{}, though no rank is missing", rank,
                              numbered(what.call, what.place.sequence), waited);
  for (std::size_t i = 0; i < missing.size() && i < 8; ++i)
    text += fmt::format(
        "{}rank {} has not {}{}{}; {}", i == 0 ? "" : ". ", missing[i],
        is_message(what.call.op) ? "met rank " + std::to_string(rank) + "'s " : "arrived at ",
        numbered(what.call, what.place.sequence), waited, what_did(missing[i]));
  if (missing.size() > 8) text += fmt::format(". {} more are missing", missing.size() - 8);
  return text;
}

std::string World::diagnose_any() const {
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    if (!ranks_[r]->waits_for.empty()) return diagnose(static_cast<int>(r), 0);
  return "no rank waits";
}

}  // namespace aisc::thread
