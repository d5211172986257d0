#include "05_pipeline/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/core/error.h"

namespace aisc {
namespace {

// How many columns a second is.
double columns_a_second(const Simulation& simulation, int columns) {
  double shortest = simulation.total_seconds;
  std::size_t longest_name = 1;
  for (const RankTimes& rank : simulation.ranks)
    for (const TimedAction& action : rank.actions) {
      const double seconds = action.end_seconds - action.begin_seconds;
      if (seconds > 0) shortest = std::min(shortest, seconds);
      longest_name = std::max(longest_name, to_string(action.action, simulation.chunks).size());
    }
  const double room = columns / simulation.total_seconds;
  const double whole = std::min(std::floor(room * shortest), static_cast<double>(longest_name));
  return whole >= 1 ? whole / shortest : room;
}

}  // namespace

std::string picture_text(const Simulation& simulation, int columns) {
  if (columns < 1) fail(fmt::format("picture_text: {} columns, at least 1 expected", columns));
  if (!(simulation.total_seconds > 0)) return "";
  const double scale = columns_a_second(simulation, columns);
  const auto column = [&](double seconds) {
    return static_cast<std::size_t>(std::lround(seconds * scale));
  };
  const std::size_t last_rank = fmt::format("{}", simulation.ranks.size() - 1).size();
  std::string text;
  for (std::size_t rank = 0; rank < simulation.ranks.size(); ++rank) {
    std::string line(column(simulation.total_seconds), '.');
    for (const auto& [action, begin, end] : simulation.ranks[rank].actions) {
      const std::size_t length = column(end) - column(begin);
      std::string name = to_string(action, simulation.chunks);
      if (name.size() > length) name.resize(1);
      name.resize(length, length > 1 ? '-' : ' ');
      line.replace(column(begin), length, name);
    }
    text += fmt::format("rank {:<{}} |{}|\n", rank, last_rank, line);
  }
  return text + fmt::format("{:.4g} s; idle {:.3g} % of the ideal time, {:.3g} % of the total\n",
                            simulation.total_seconds, 100 * bubble_of_ideal(simulation),
                            100 * bubble_of_total(simulation));
}

std::vector<TimelineRow> timeline_of(const Simulation& simulation) {
  std::vector<TimelineRow> rows;
  for (std::size_t rank = 0; rank < simulation.ranks.size(); ++rank) {
    TimelineRow actions{fmt::format("rank {}", rank), {}};
    TimelineRow messages{fmt::format("rank {} sends", rank), {}};
    for (const auto& [action, begin, end] : simulation.ranks[rank].actions)
      if (end > begin)
        actions.events.push_back({.name = to_string(action, simulation.chunks),
                                  .part = part_of_step(action.kind),
                                  .begin_seconds = begin,
                                  .end_seconds = end});
    for (const auto& [action, to, begin, arrives] : simulation.ranks[rank].sent)
      if (arrives > begin)
        messages.events.push_back(
            {.name = fmt::format("{} to rank {}", to_string(action, simulation.chunks), to),
             .part = "communication",
             .begin_seconds = begin,
             .end_seconds = arrives,
             .lane = 1});
    rows.push_back(std::move(actions));
    if (!messages.events.empty()) rows.push_back(std::move(messages));
  }
  return rows;
}

}  // namespace aisc
