// Can a schedule be executed? Ranks run their lists in order and hand results to each other; here
// that is done without any model, so that a wrong schedule is a sentence and not a job that hangs.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "05_pipeline/handovers.h"
#include "05_pipeline/list_checks.h"
#include "05_pipeline/schedule.h"

namespace aisc {

// How many actions of its list each rank has done when no rank can go on: all of them unless ranks
// wait for each other. An action can begin when
//   1. those before it in its list are done,
//   2. its source is done, if it has one, and
//   3. with Blocking: the action before it has no target on another rank, or that target has begun.
// What can begin is done (the two are one here): an action whose message still waits is done, too.
// The lists must be complete.
std::vector<std::size_t> run_lists(const Handovers& handovers, Sends sends);

struct CheckOptions {
  Sends sends = Sends::Started;
  // By rank: the most that it may keep, each from its forward to the last action of the same
  // micro-batch and chunk (WeightGradient where that is split off). Empty: any number.
  std::vector<int> most_in_flight = {};
};

// Empty if the schedule can be executed. Else a sentence for each problem, with rank, action, and
// what was expected: those of list_problems(), and if there are none, messages that are taken for
// another, ranks with more micro-batches in flight than options say, and the circle of ranks that
// wait for each other. Throws Error where options.most_in_flight has not a number for each rank.
std::vector<std::string> problems(const Schedule& schedule, const CheckOptions& options = {});

}  // namespace aisc
