// Times are asked for backwards: an action's begin needs its source's end, so the source's rank is
// run up to there first. A rank that is asked for while it waits itself waits in a circle.
#include "05_pipeline/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "05_pipeline/handovers.h"
#include "05_pipeline/list_checks.h"
#include "common/core/error.h"

namespace aisc {
namespace {

class Simulator {
 public:
  Simulator(const Schedule& schedule, const std::vector<ActionCosts>& costs, const LinkCosts& link)
      : schedule_(schedule),
        costs_(costs),
        link_(link),
        handovers_(schedule),
        done_(schedule.actions.size()),
        is_waiting_(schedule.actions.size()),
        handed_over_(schedule.actions.size()),
        ranks_(schedule.actions.size()) {}

  std::vector<RankTimes> run() {
    for (int rank = 0; rank < schedule_.ranks(); ++rank)
      run_to(rank, schedule_.actions[index(rank)].size());
    return std::move(ranks_);
  }

 private:
  // The rank's first `count` actions.
  void run_to(int rank, std::size_t count) {
    // done_ is a reference: input_seconds() may come back here for other ranks, and for this one
    // only in a circle, which it refuses.
    for (std::size_t& i = done_[index(rank)]; i < count; ++i) {
      RankTimes& own = ranks_[index(rank)];
      const Action& action = handovers_.action({rank, i});
      const double rank_free = own.actions.empty() ? 0 : own.actions.back().end_seconds;
      const double begin = std::max(rank_free, input_seconds({rank, i}));
      const double seconds = seconds_of(rank, action);
      own.actions.push_back({action, begin, begin + seconds});
      own.busy_seconds += seconds;
      handed_over_[index(rank)].push_back(hand_over({rank, i}, begin + seconds));
    }
  }

  // When the action's input is there.
  double input_seconds(ActionAt at) {
    const auto source = handovers_.source_of(at);
    if (!source) return 0;
    if (source->position >= done_[index(source->rank)]) {
      is_waiting_[index(at.rank)] = true;
      if (is_waiting_[index(source->rank)])
        fail(fmt::format("{}: {}", schedule_.name,
                         circle_text(handovers_, done_, Sends::Started, at.rank)));
      run_to(source->rank, source->position + 1);
      is_waiting_[index(at.rank)] = false;
    }
    return handed_over_[index(source->rank)][source->position];
  }

  // When the result of an action that ends then is where it is needed.
  double hand_over(ActionAt at, double end) {
    const auto target = handovers_.target_of(at);
    if (!target || target->rank == at.rank) return end;
    const Action& action = handovers_.action(at);
    RankTimes& own = ranks_[index(at.rank)];
    Traffic& traffic = action.kind == ActionKind::Forward ? own.forward : own.backward;
    traffic.messages += 1;
    traffic.bytes += link_.bytes;
    double& link_free = link_free_[{action.kind, at.rank, target->rank}];
    const double begin = std::max(end, link_free);
    link_free = begin + static_cast<double>(link_.bytes) * link_.seconds_per_byte;
    own.sent.push_back({action, target->rank, begin, link_free + link_.latency_seconds});
    return own.sent.back().arrives_seconds;
  }

  double seconds_of(int rank, const Action& action) const {
    const int stage = schedule_.stage_of[index(rank)][index(action.chunk)];
    const ActionCosts& costs = costs_[costs_.size() == 1 ? 0 : index(stage)];
    if (action.kind == ActionKind::Forward) return costs.forward;
    if (action.kind == ActionKind::WeightGradient) return costs.weight_gradient;
    if (action.kind == ActionKind::Update) return costs.update;
    return schedule_.splits_backward ? costs.backward : costs.backward + costs.weight_gradient;
  }

  const Schedule& schedule_;
  const std::vector<ActionCosts>& costs_;
  const LinkCosts& link_;
  const Handovers handovers_;
  std::vector<std::size_t> done_;                 // actions of each rank
  std::vector<bool> is_waiting_;                  // ranks, for another's action
  std::vector<std::vector<double>> handed_over_;  // by rank and position
  std::vector<RankTimes> ranks_;
  std::map<std::tuple<ActionKind, int, int>, double> link_free_;  // direction, from, to
};

void check_costs(const Schedule& schedule, const std::vector<ActionCosts>& costs,
                 const LinkCosts& link) {
  if (costs.size() != 1 && costs.size() != index(schedule.stages()))
    fail(fmt::format("{}: costs of {} stages, 1 for all or {} expected", schedule.name,
                     costs.size(), schedule.stages()));
  for (std::size_t stage = 0; stage < costs.size(); ++stage)
    for (const double seconds : {costs[stage].forward, costs[stage].backward,
                                 costs[stage].weight_gradient, costs[stage].update})
      if (!(seconds >= 0))
        fail(fmt::format("{}: stage {}: an action of {} seconds, at least 0 expected",
                         schedule.name, stage, seconds));
  if (!(link.latency_seconds >= 0 && link.seconds_per_byte >= 0 && link.bytes >= 0))
    fail(
        fmt::format("{}: link of {} seconds, {} seconds per byte and {} bytes, each at least 0 "
                    "expected",
                    schedule.name, link.latency_seconds, link.seconds_per_byte, link.bytes));
}

struct Sums {
  double busy = 0, idle = 0;
};
Sums sums_of(const Simulation& simulation) {
  Sums sums;
  for (const RankTimes& rank : simulation.ranks) {
    sums.busy += rank.busy_seconds;
    sums.idle += rank.idle_seconds;
  }
  return sums;
}

}  // namespace

Simulation simulate(const Schedule& schedule, const std::vector<ActionCosts>& costs,
                    const LinkCosts& link) {
  if (const std::vector<std::string> found = list_problems(schedule); !found.empty())
    fail(fmt::format("{}: {}", schedule.name, found[0]));
  check_costs(schedule, costs, link);
  Simulation result{.name = schedule.name, .chunks = schedule.chunks()};
  result.ranks = Simulator(schedule, costs, link).run();
  for (const RankTimes& rank : result.ranks)
    result.total_seconds = std::max(result.total_seconds, rank.actions.back().end_seconds);
  const std::vector<int> in_flight = most_in_flight(schedule);
  for (std::size_t rank = 0; rank < result.ranks.size(); ++rank) {
    result.ranks[rank].idle_seconds = result.total_seconds - result.ranks[rank].busy_seconds;
    result.ranks[rank].most_in_flight = in_flight[rank];
  }
  return result;
}

double bubble_of_ideal(const Simulation& simulation) {
  const Sums sums = sums_of(simulation);
  return sums.busy > 0 ? sums.idle / sums.busy : 0;
}

double bubble_of_total(const Simulation& simulation) {
  const Sums sums = sums_of(simulation);
  return sums.busy > 0 ? sums.idle / (sums.busy + sums.idle) : 0;
}

}  // namespace aisc
