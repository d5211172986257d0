// Schedules that are written down: a string for each rank.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "05_pipeline/schedule.h"

namespace aisc::written {

// "F0 F1.1 B0 W0 U1.0" (chunk 1 after the point; of an update, too).
inline std::vector<Action> list(const std::string& text) {
  std::vector<Action> actions;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t point = word.find('.');
    actions.push_back({word[0] == 'F'   ? ActionKind::Forward
                       : word[0] == 'B' ? ActionKind::Backward
                       : word[0] == 'W' ? ActionKind::WeightGradient
                                        : ActionKind::Update,
                       std::atoi(word.c_str() + 1),
                       point == std::string::npos ? 0 : std::atoi(word.c_str() + point + 1)});
  }
  return actions;
}

// Splits off weight gradients if there are any.
inline Schedule schedule(int micro_batches, const std::vector<std::string>& lists,
                         std::vector<std::vector<int>> stage_of = {}) {
  Schedule s{.name = "written", .micro_batches = micro_batches, .stage_of = std::move(stage_of)};
  if (s.stage_of.empty()) s.stage_of = one_stage_each(static_cast<int>(lists.size()));
  for (const std::string& text : lists) {
    s.actions.push_back(list(text));
    s.splits_backward = s.splits_backward || text.find('W') != std::string::npos;
  }
  return s;
}

// All ranks with the same list.
inline Schedule same(int ranks, int micro_batches, const std::string& text) {
  return schedule(micro_batches, std::vector<std::string>(static_cast<std::size_t>(ranks), text));
}

// One micro-batch after the other on all ranks.
inline Schedule one_by_one(int ranks, int micro_batches) {
  std::string text;
  for (int k = 0; k < micro_batches; ++k)
    text += " F" + std::to_string(k) + " B" + std::to_string(k);
  return same(ranks, micro_batches, text);
}

// Two ranks: the second has a backward after each forward.
inline Schedule two_by_turns() { return schedule(2, {"F0 F1 B0 B1", "F0 B0 F1 B1"}); }

}  // namespace aisc::written
