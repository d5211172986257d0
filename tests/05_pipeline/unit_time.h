// Schedules in whole units of time, where messages take none: what tests of their makers need, and
// nothing of the module's own checks and simulation.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "05_pipeline/schedule.h"

namespace aisc::unit_time {

// Of one chunk. A backward that is not split takes backward + weight_gradient; updates take
// nothing.
struct Costs {
  int forward = 1, backward = 1, weight_gradient = 1;
};

struct Times {
  std::string problem;                   // the first that was found; the rest is then not complete
  std::vector<std::vector<int>> begins;  // by rank and position in its list
  std::vector<int> idle;                 // by rank: from its first action on to its last
  std::vector<int> in_flight;            // by rank: the most
  int bubble = 0;                        // the most of `idle`
  int total = 0;                         // end of the last action
};

using Done = std::map<std::tuple<ActionKind, int, int>, int>;  // kind, micro-batch, stage: its end

// What must be done before an action on `stage`, where a copy of the model has `stages` stages.
inline std::vector<Done::key_type> needs_of(const Action& a, int stage, int stages) {
  using enum ActionKind;
  const int k = a.micro_batch, place = stage % stages;
  std::vector<Done::key_type> needs;
  if (a.kind == Forward && place > 0) needs.push_back({Forward, k, stage - 1});
  if (a.kind == Backward) needs.push_back({Forward, k, stage});
  if (a.kind == Backward && place < stages - 1) needs.push_back({Backward, k, stage + 1});
  if (a.kind == WeightGradient) needs.push_back({Backward, k, stage});
  return needs;
}

// "" or the first action that a list has twice, that it has not, or that nobody knows.
inline std::string first_missing(const Schedule& s) {
  const int kinds = s.splits_backward ? 3 : 2;
  if (s.actions.size() != s.stage_of.size()) return "there is not one list for each rank";
  for (int rank = 0; rank < s.ranks(); ++rank) {
    const std::vector<Action>& list = s.actions[static_cast<std::size_t>(rank)];
    const std::string who = "rank " + std::to_string(rank) + ": ";
    for (const Action& a : list)
      if (a.micro_batch < 0 || a.micro_batch >= s.micro_batches || a.chunk < 0 ||
          a.chunk >= s.chunks() || (a.kind == ActionKind::WeightGradient && !s.splits_backward))
        return who + "there is no " + to_string(a, 2) + " (micro-batch.chunk)";
    for (int chunk = 0; chunk < s.chunks(); ++chunk)
      for (int k = 0; k < s.micro_batches; ++k)
        for (int kind = 0; kind < kinds; ++kind) {
          const Action a{static_cast<ActionKind>(kind), k, chunk};
          const auto times = std::count(list.begin(), list.end(), a);
          if (times != 1)
            return who + to_string(a, s.chunks()) + " is there " + std::to_string(times) +
                   " times, once is expected";
        }
  }
  return {};
}

// Each rank does its list in order, each action as early as its needs are done.
inline Times run(const Schedule& s, const Costs& costs = {}) {
  const auto ranks = static_cast<std::size_t>(s.ranks());
  Times t{.problem = first_missing(s),
          .begins = std::vector<std::vector<int>>(ranks),
          .idle = std::vector<int>(ranks),
          .in_flight = std::vector<int>(ranks)};
  if (!t.problem.empty()) return t;
  const std::vector<int> seconds{costs.forward,
                                 costs.backward + (s.splits_backward ? 0 : costs.weight_gradient),
                                 costs.weight_gradient, 0};
  const ActionKind last = s.splits_backward ? ActionKind::WeightGradient : ActionKind::Backward;
  Done done;
  std::vector<int> now(ranks), flying(ranks);
  // The rank's next action, if it can be done.
  const auto step = [&](std::size_t rank) {
    const std::size_t i = t.begins[rank].size();
    if (i == s.actions[rank].size()) return false;
    const Action& a = s.actions[rank][i];
    const int stage = s.stage_of[rank][static_cast<std::size_t>(a.chunk)];
    int begin = now[rank];
    for (const auto& need : needs_of(a, stage, s.stages() / s.copies)) {
      if (done.find(need) == done.end()) return false;
      begin = std::max(begin, done[need]);
    }
    if (i > 0) t.idle[rank] += begin - now[rank];
    t.begins[rank].push_back(begin);
    now[rank] = begin + seconds[static_cast<std::size_t>(a.kind)];
    if (a.kind != ActionKind::Update) done[{a.kind, a.micro_batch, stage}] = now[rank];
    flying[rank] += (a.kind == ActionKind::Forward ? 1 : 0) - (a.kind == last ? 1 : 0);
    t.in_flight[rank] = std::max(t.in_flight[rank], flying[rank]);
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < ranks; ++rank)
      while (step(rank)) moved = true;
  }
  for (std::size_t rank = 0; rank < ranks; ++rank)
    if (const std::size_t i = t.begins[rank].size(); i < s.actions[rank].size())
      t.problem += "rank " + std::to_string(rank) + " waits for ever before " +
                   to_string(s.actions[rank][i], s.chunks()) + "; ";
  t.bubble = *std::max_element(t.idle.begin(), t.idle.end());
  t.total = *std::max_element(now.begin(), now.end());
  return t;
}

// "F0 F1 B0 U" of each rank.
inline std::vector<std::string> lists(const Schedule& s) {
  std::vector<std::string> all;
  for (const std::vector<Action>& list : s.actions) {
    all.emplace_back();
    for (const Action& a : list)
      all.back() += (all.back().empty() ? "" : " ") + to_string(a, s.chunks());
  }
  return all;
}

// "" or the first action on a chunk that its rank has not: texts of lists of one chunk do not show
// it.
inline std::string first_on_no_chunk(const Schedule& s) {
  for (std::size_t rank = 0; rank < s.actions.size(); ++rank)
    for (const Action& a : s.actions[rank])
      if (a.chunk < 0 || a.chunk >= s.chunks())
        return "rank " + std::to_string(rank) + ": " + to_string(a) + " is on chunk " +
               std::to_string(a.chunk) + ", but a rank has chunk 0" +
               (s.chunks() == 1 ? " alone" : " to chunk " + std::to_string(s.chunks() - 1));
  return {};
}

// `why` says what the lists are to show, in words for who wrote them.
inline ::testing::AssertionResult lists_are(const Schedule& s,
                                            const std::vector<std::string>& expected,
                                            const std::string& why) {
  if (const std::string problem = first_on_no_chunk(s); !problem.empty())
    return ::testing::AssertionFailure() << s.name << ": " << problem;
  const std::vector<std::string> found = lists(s);
  if (found == expected) return ::testing::AssertionSuccess();
  auto failure = ::testing::AssertionFailure() << s.name << ": " << why << ".\n";
  for (std::size_t rank = 0; rank < std::max(found.size(), expected.size()); ++rank)
    failure << "  rank " << rank << " found    " << (rank < found.size() ? found[rank] : "nothing")
            << "\n         expected " << (rank < expected.size() ? expected[rank] : "nothing")
            << "\n";
  return failure;
}

// Micro-batches of a kind and chunk come in their order, so that sums do.
inline bool in_order(const std::vector<Action>& list) {
  std::map<std::pair<ActionKind, int>, int> before;
  for (const Action& a : list) {
    const auto [last, is_first] = before.try_emplace({a.kind, a.chunk}, a.micro_batch);
    if (!is_first && last->second >= a.micro_batch) return false;
    last->second = a.micro_batch;
  }
  return true;
}

// The schedule can be run, its bubble and each rank's in-flight peak are these, and a list ends
// with one update a chunk after all micro-batches.
inline void expect_times(const Schedule& s, const Costs& costs, int bubble,
                         const std::function<int(int rank)>& in_flight) {
  const std::string what = s.name + " of " + std::to_string(s.ranks()) + " ranks, " +
                           std::to_string(s.chunks()) + " chunks, " +
                           std::to_string(s.micro_batches) + " micro-batches: ";
  const Times t = run(s, costs);
  ASSERT_EQ(t.problem, "") << what;
  EXPECT_EQ(t.bubble, bubble) << what << "units that a rank idles, the most";
  for (int rank = 0; rank < s.ranks(); ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    EXPECT_EQ(t.in_flight[r], in_flight(rank))
        << what << "in flight on rank " << rank << ", the most. More: it begins too many forwards "
        << "before a backward, or lets weight gradients wait too long; fewer: too few";
    EXPECT_TRUE(in_order(s.actions[r]))
        << what << "rank " << rank << ": micro-batches of a kind do not come in the order 0, 1, 2";
    std::vector<Action> updates;
    for (int chunk = 0; chunk < s.chunks(); ++chunk)
      updates.push_back({ActionKind::Update, s.micro_batches - 1, chunk});
    EXPECT_TRUE(s.actions[r].size() >= updates.size() &&
                std::equal(updates.rbegin(), updates.rend(), s.actions[r].rbegin()))
        << what << "rank " << rank << " does not end with its updates";
  }
}

}  // namespace aisc::unit_time
