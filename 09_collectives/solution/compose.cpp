#include "09_collectives/compose.h"

#include <algorithm>
#include <string>
#include <utility>

namespace aisc {

Plan moved(Plan plan, std::int64_t elements) {
  for (PlanAction& action : plan.actions)
    for (Piece* piece : {&action.from, &action.to})
      if (piece->where == Piece::Where::Out) piece->begin += elements;
  return plan;
}

Plan side_by_side(std::string name, std::span<const Plan> plans) {
  Plan all{.name = std::move(name)};
  std::size_t steps = 0;
  for (const Plan& plan : plans) steps = std::max(steps, plan.steps());
  for (std::size_t s = 0; s < steps; ++s) {
    std::int64_t scratch = 0;  // where this plan's begins
    for (const Plan& plan : plans) {
      if (s < plan.steps())
        for (PlanAction action : plan.step(s)) {
          for (Piece* piece : {&action.from, &action.to})
            if (piece->where == Piece::Where::Scratch) piece->begin += scratch;
          all.actions.push_back(action);
        }
      scratch += plan.scratch_count;
    }
    all.end_step();
  }
  for (const Plan& plan : plans) all.scratch_count += plan.scratch_count;
  return all;
}

void append(Plan& plan, const Plan& next) {
  plan.end_step();
  for (std::size_t s = 0; s < next.steps(); ++s) {
    const auto step = next.step(s);
    plan.actions.insert(plan.actions.end(), step.begin(), step.end());
    plan.end_step();
  }
  plan.scratch_count = std::max(plan.scratch_count, next.scratch_count);
}

}  // namespace aisc
