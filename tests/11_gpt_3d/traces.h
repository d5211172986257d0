// Traces of ranks, by hand and drawn, and what is to be found in them, told from all pairs of
// ranks.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "11_gpt_3d/waits.h"
#include "common/core/rng.h"
#include "tests/support/drawn.h"

namespace aisc::traces {

using Ranks = std::vector<int>;
using Trace = std::vector<TracedRank>;

// Calls that have not come back.
inline TracedCall sum(const std::string& group, const Ranks& ranks) {
  return {group, CommOp::AllReduce, ranks};
}
inline TracedCall gather(const std::string& group, const Ranks& ranks) {
  return {group, CommOp::AllGather, ranks};
}
inline TracedCall message(const std::string& group, int from, int to) {
  return {group, CommOp::Send, {from, to}};
}
inline TracedCall over(TracedCall call) {
  call.end_seconds = call.begin_seconds;
  return call;
}

inline std::string text_of(const Ranks& ranks) {
  return ranks.empty() ? "nobody" : fmt::format("{}", fmt::join(ranks, " "));
}

inline std::string text_of(const Trace& trace) {
  std::string text = "The trace:";
  for (std::size_t rank = 0; rank < trace.size(); ++rank) {
    text += fmt::format("\n  rank {}:", rank);
    for (const TracedCall& c : trace[rank].calls)
      text += fmt::format(" {} on {} of {}{};", name_of(c.op), c.communicator, text_of(c.ranks),
                          c.end_seconds ? "" : ", not back");
    text += trace[rank].ended ? " ended" : "";
  }
  return text;
}

// Numbers one after another, of a name.
class Draws {
 public:
  explicit Draws(const std::string& name) : random_(test_seed(), name) {}
  int below(int n) {
    return static_cast<int>(random_.below(next_++, static_cast<std::uint64_t>(n)));
  }

 private:
  Philox random_;
  std::uint64_t next_ = 0;
};

struct StoppedRun {
  Trace trace;
  int victim;
  bool somebody_waits;
};

// The groups of a mesh, tp fastest and pp slowest, each by a call of it: sums, and messages to the
// next stage and back.
inline std::vector<TracedCall> groups_of_a_mesh(int tp, int dp, int pp) {
  std::map<std::string, Ranks> members;
  const int stage = tp * dp, ranks = stage * pp;
  for (int r = 0; r < ranks; ++r) {
    members[fmt::format("tp {}", r / tp)].push_back(r);
    members[fmt::format("dp {} {}", r / stage, r % tp)].push_back(r);
    members["world"].push_back(r);
  }
  std::vector<TracedCall> groups;
  for (const auto& [group, of] : members) groups.push_back(sum(group, of));
  for (int r = 0; r + stage < ranks; ++r) {
    groups.push_back(message(fmt::format("pp {}", r % stage), r, r + stage));
    groups.push_back(message(fmt::format("pp {}", r % stage), r + stage, r));
  }
  return groups;
}

// All ranks call in one order, in which each goes on as far as it can; `victim` stops before one of
// its calls, where it computes or has died, or dies inside of it.
inline StoppedRun stopped_run(const std::string& name) {
  Draws draws(name);
  const int tp = 1 + draws.below(3), dp = 1 + draws.below(3), pp = 1 + draws.below(3);
  const std::vector<TracedCall> groups = groups_of_a_mesh(tp, dp, pp);
  StoppedRun run{Trace(static_cast<std::size_t>(tp * dp * pp)), draws.below(tp * dp * pp), false};
  enum How { Computes, Died, DiesInside };
  const auto how = static_cast<How>(draws.below(3));
  int left = draws.below(12);  // calls of the victim that come back
  std::vector<bool> stopped(run.trace.size());
  double now = 0;
  for (int i = 10 + draws.below(60); i > 0; --i) {
    TracedCall call =
        groups[static_cast<std::size_t>(draws.below(static_cast<int>(groups.size())))];
    call.begin_seconds = ++now;
    bool all_came = true;
    std::vector<std::size_t> begun;
    for (const int r : call.ranks) {
      const auto rank = static_cast<std::size_t>(r);
      const bool stops = r == run.victim && !stopped[rank] && left-- == 0;
      if (!stopped[rank] && (!stops || how == DiesInside)) {
        run.trace[rank].calls.push_back(call);
        begun.push_back(rank);
      }
      if (stops) run.trace[rank].ended = how != Computes;
      stopped[rank] = stopped[rank] || stops;
      all_came = all_came && !stopped[rank];
    }
    for (const std::size_t rank : begun) {
      if (all_came) run.trace[rank].calls.back().end_seconds = now + 0.5;
      stopped[rank] = stopped[rank] || !all_came;
      run.somebody_waits =
          run.somebody_waits || (!all_came && static_cast<int>(rank) != run.victim);
    }
  }
  return run;
}

// Calls without any order: circles, mismatches, ranks that have ended.
inline Trace senseless_trace(const std::string& name) {
  Draws draws(name);
  Trace trace(static_cast<std::size_t>(2 + draws.below(5)));
  const int n = static_cast<int>(trace.size());
  std::vector<TracedCall> groups;
  for (int i = 0; i < 4; ++i) {
    Ranks members;
    for (int r = 0; r < n; ++r)
      if (draws.below(2) == 0) members.push_back(r);
    if (!members.empty()) groups.push_back(sum(fmt::format("group {}", draws.below(2)), members));
    const int from = draws.below(n), to = (from + 1 + draws.below(n - 1)) % n;
    groups.push_back(message("group 0", from, to));
    groups.push_back(message("group 0", to, from));
  }
  for (int i = draws.below(20); i > 0; --i) {
    const int rank = draws.below(n);
    TracedCall call =
        groups[static_cast<std::size_t>(draws.below(static_cast<int>(groups.size())))];
    if (std::count(call.ranks.begin(), call.ranks.end(), rank) == 0) continue;
    if (draws.below(8) == 0) call.op = CommOp::AllGather;
    trace[static_cast<std::size_t>(rank)].calls.push_back(draws.below(8) == 0 ? call : over(call));
  }
  for (TracedRank& rank : trace) {
    if (!rank.calls.empty() && draws.below(4) > 0) rank.calls.back().end_seconds = {};
    rank.ended = draws.below(8) == 0;
  }
  return trace;
}

// What there is to find, from all pairs of ranks.
struct Oracle {
  std::vector<Ranks> waits;
  Ranks mismatched, causes;
  bool has_circle = false;

  explicit Oracle(const Trace& trace) : waits(trace.size()) {
    const std::size_t n = trace.size();
    std::vector<std::vector<bool>> reaches(n, std::vector<bool>(n));
    std::vector<bool> disagrees(n);
    for (std::size_t r = 0; r < n; ++r) {
      TracedRank until = trace[r];  // the first call that has not come back
      std::size_t open = 0;
      while (open < until.calls.size() && until.calls[open].end_seconds) ++open;
      if (trace[r].ended || open == until.calls.size()) continue;
      until.calls.resize(open + 1);
      for (const int other : until.calls.back().ranks) {
        const auto o = static_cast<std::size_t>(other);
        const std::vector<TracedCall> mine = same_calls(until, until.calls.back());
        const std::vector<TracedCall> theirs = same_calls(trace[o], until.calls.back());
        const std::size_t number = mine.size() - 1;
        if (number >= theirs.size() || (trace[o].ended && !theirs[number].end_seconds)) {
          waits[r].push_back(other);
          reaches[r][o] = true;
        } else if (theirs[number].op != mine[number].op) {
          disagrees[r] = true;
        }
      }
    }
    for (std::size_t middle = 0; middle < n; ++middle)
      for (std::size_t a = 0; a < n; ++a)
        for (std::size_t b = 0; b < n; ++b)
          if (reaches[a][middle] && reaches[middle][b]) reaches[a][b] = true;
    for (std::size_t r = 0; r < n; ++r) {
      bool is_waited_for = false;
      for (std::size_t a = 0; a < n; ++a) is_waited_for = is_waited_for || reaches[a][r];
      has_circle = has_circle || reaches[r][r];
      if (disagrees[r]) mismatched.push_back(static_cast<int>(r));
      if (disagrees[r] || reaches[r][r] || (is_waited_for && waits[r].empty()))
        causes.push_back(static_cast<int>(r));
    }
  }

 private:
  static std::vector<TracedCall> same_calls(const TracedRank& rank, const TracedCall& like) {
    std::vector<TracedCall> same;
    for (const TracedCall& c : rank.calls)
      if (c.communicator == like.communicator && c.ranks == like.ranks) same.push_back(c);
    return same;
  }
};

}  // namespace aisc::traces
