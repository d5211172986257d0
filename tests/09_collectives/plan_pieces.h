// The pieces of plans, as data: which elements a rank sends, the memory that it asks for, and
// counts that no int holds.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/comm/plan_runs.h"

namespace aisc::plan_runs {

inline constexpr std::int64_t kBeyondInt = std::int64_t{3} << 31;  // elements

// What a rank sends, in order: "[5,11) [0,2)".
inline std::string pieces_sent(const Plan& plan) {
  std::string text;
  for (const PlanAction& action : plan.actions)
    if (action.kind == PlanAction::Kind::Send)
      text += (text.empty() ? "[" : " [") + std::to_string(action.from.begin) + "," +
              std::to_string(action.from.begin + action.from.count) + ")";
  return text;
}

// The messages that a rank sends, step by step: "2: 4, 3: 4 | 1: 2", to 2 and 3 four elements each,
// then to 1 two. Steps in which it sends nothing are left out.
inline std::string sends_of(const Plan& plan) {
  std::string text;
  for (std::size_t s = 0; s < plan.steps(); ++s) {
    std::string step;
    for (const PlanAction& action : plan.step(s))
      if (action.kind == PlanAction::Kind::Send)
        step += (step.empty() ? "" : ", ") + std::to_string(action.peer) + ": " +
                std::to_string(action.from.count);
    if (!step.empty()) text += (text.empty() ? "" : " | ") + step;
  }
  return text;
}

// Rank r has elements for most(r) of scratch at most.
inline void expect_scratch(const PlanMaker& maker, const Collective& c, int p,
                           const std::function<std::int64_t(int)>& most) {
  for (int r = 0; r < p; ++r)
    EXPECT_LE(maker(c, r, p).scratch_count, most(r))
        << "rank " << r << " of " << p << ", count " << c.call.count << ": elements of scratch";
}

// What all ranks send together; each piece has to lie in its buffer.
inline std::int64_t elements_sent(const PlanMaker& maker, const Collective& c, int p) {
  const CommOp op = c.call.op;
  const std::int64_t n = c.call.count, all = p * n;
  const bool is_all_in = op != CommOp::AllGather, is_all_to_all = op == CommOp::AllToAll;
  const bool is_all_out = op == CommOp::AllGather || is_all_to_all;
  std::int64_t sent = 0;
  for (int r = 0; r < p; ++r) {
    const Plan plan = maker(c, r, p);
    const auto expect_inside = [&](const Piece& piece) {
      const std::int64_t most = piece.where == Where::Scratch ? plan.scratch_count
                                : piece.where == Where::In    ? (is_all_in ? all : n)
                                                              : (is_all_out ? all : n);
      EXPECT_GE(piece.begin, 0) << "rank " << r << ": where a piece begins";
      EXPECT_GT(piece.count, 0) << "rank " << r << ": elements of a piece";
      EXPECT_LE(piece.begin + piece.count, most)
          << "rank " << r << ": where a piece ends in a buffer of " << most << " elements";
    };
    for (const PlanAction& action : plan.actions) {
      if (action.kind != PlanAction::Kind::Recv) expect_inside(action.from);
      if (action.kind != PlanAction::Kind::Send) expect_inside(action.to);
    }
    sent += traffic_of(plan).elements;
  }
  return sent;
}

}  // namespace aisc::plan_runs
