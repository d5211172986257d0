#include "09_collectives/cost.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>

#include "09_collectives/choose.h"
#include "common/comm/simulate.h"
#include "common/core/error.h"

namespace aisc {
namespace {

bool is_flat(const Network& network, int ranks) {
  return network.routes.empty() && !network.crosses_nodes(0, ranks - 1);
}

// Of `bytes`, rounded up to what call_of takes.
double simulated_seconds(const Algorithm& algorithm, int ranks, double bytes,
                         const Network& network, const Tuning& tuning) {
  const std::int64_t unit = 4 * std::int64_t{ranks};
  const auto even = static_cast<std::int64_t>(std::ceil(bytes / static_cast<double>(unit))) * unit;
  const Collective call = call_of(algorithm.op, ranks, even);
  return simulate(plan_maker(algorithm, tuning), call, ranks, network).seconds;
}

// The choices that have been made; ranks that are threads share them.
class Choices {
 public:
  explicit Choices(Network network) : network_(std::move(network)) {}

  Choice choice(CommOp op, int ranks, std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    const std::tuple key(op, ranks, bytes);
    auto place = made_.find(key);
    if (place == made_.end())
      place = made_.emplace(key, choose(op, ranks, static_cast<double>(bytes), network_)).first;
    return place->second;
  }

 private:
  const Network network_;
  std::mutex mutex_;
  std::map<std::tuple<CommOp, int, std::int64_t>, Choice> made_;
};

}  // namespace

Cost cost(const Algorithm& algorithm, int ranks, double bytes, const Network& network,
          const Tuning& tuning) {
  if (ranks < 1 || !(bytes >= 0))
    fail(fmt::format("cost: {} ranks, {} bytes: at least 1 and 0 expected", ranks, bytes));
  Cost cost = algorithm.cost(ranks, bytes, network, tuning);
  if (!is_flat(network, ranks))
    cost.seconds = simulated_seconds(algorithm, ranks, bytes, network, tuning);
  return cost;
}

PlanTable chosen_plans(const Network& network) {
  const auto choices = std::make_shared<Choices>(network);
  PlanTable table;
  for (const Algorithm& known : algorithms())
    table[known.op] = [choices](const Collective& c, int rank, int size) {
      const bool is_whole = c.call.op == CommOp::AllReduce || c.call.op == CommOp::Reduce ||
                            c.call.op == CommOp::Broadcast;
      const std::int64_t part = c.call.count * static_cast<std::int64_t>(size_of(c.call.dtype));
      const Choice choice = choices->choice(c.call.op, size, is_whole ? part : part * size);
      return choice.algorithm->plan(c, rank, size, choice.tuning);
    };
  return table;
}

std::int64_t crossover(const Algorithm& first, const Algorithm& second, int ranks,
                       const Network& network, std::int64_t unit, std::int64_t most, By by) {
  const auto seconds = [&](const Algorithm& algorithm, double bytes) {
    double best = std::numeric_limits<double>::infinity();
    for (const Tuning& tuning : algorithm.tunings(ranks, bytes, network))
      best = std::min(best, by == By::Formula
                                ? cost(algorithm, ranks, bytes, network, tuning).seconds
                                : simulated_seconds(algorithm, ranks, bytes, network, tuning));
    return best;
  };
  const auto is_reached = [&](std::int64_t units) {
    const auto bytes = static_cast<double>(units * unit);
    return seconds(second, bytes) <= seconds(first, bytes);
  };
  // Reached at `high`, not at `low`, between which it lies.
  std::int64_t low = 1, high = most / unit;
  if (is_reached(low)) return unit;
  if (!is_reached(high)) return -1;
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (is_reached(middle) ? high : low) = middle;
  }
  return high * unit;
}

}  // namespace aisc
