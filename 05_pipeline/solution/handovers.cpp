#include "05_pipeline/handovers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace aisc {
namespace {

// What a rank that cannot go on waits for, and of which rank.
std::optional<std::pair<int, std::string>> wait_of(const Handovers& h,
                                                   const std::vector<std::size_t>& done,
                                                   Sends sends, int rank) {
  const std::size_t next = done.at(index(rank));
  const auto is_missing = [&](const std::optional<ActionAt>& at) {
    return at && at->position >= done.at(index(at->rank));
  };
  if (sends == Sends::Blocking && next > 0) {
    const ActionAt last{rank, next - 1};
    const auto target = h.target_of(last);
    if (target && target->rank != rank && is_missing(target))
      return {{target->rank,
               fmt::format("rank {} cannot end its send after {} before rank {} begins {}", rank,
                           h.name(last), target->rank, h.name(*target))}};
  }
  if (next >= h.schedule().actions[index(rank)].size()) return {};
  const auto source = h.source_of({rank, next});
  if (!is_missing(source)) return {};
  return {{source->rank, fmt::format("rank {} cannot begin {} before rank {} has done {}", rank,
                                     h.name({rank, next}), source->rank, h.name(*source))}};
}

}  // namespace

Handovers::Handovers(const Schedule& schedule)
    : schedule_(schedule),
      places_(stage_places(schedule)),
      positions_(2 * index(schedule.stages()) * index(schedule.micro_batches)) {
  // Where each stage's forward and backward of a micro-batch stand in their rank's list: neighbours
  // are found by that in one step.
  for (int rank = 0; rank < schedule.ranks(); ++rank)
    for (std::size_t i = 0; i < schedule.actions[index(rank)].size(); ++i) {
      const Action& a = action({rank, i});
      if (a.kind == ActionKind::Forward || a.kind == ActionKind::Backward)
        positions_[slot(a.kind, schedule.stage_of[index(rank)][index(a.chunk)], a.micro_batch)] = i;
    }
}

const Action& Handovers::action(ActionAt at) const {
  return schedule_.actions[index(at.rank)][at.position];
}

std::string Handovers::name(ActionAt at) const { return to_string(action(at), schedule_.chunks()); }

std::size_t Handovers::slot(ActionKind kind, int stage, int micro_batch) const {
  const std::size_t which = kind == ActionKind::Forward ? 0 : index(schedule_.stages());
  return (which + index(stage)) * index(schedule_.micro_batches) + index(micro_batch);
}

std::optional<ActionAt> Handovers::neighbour(ActionAt at, int step) const {
  const Action& a = action(at);
  if (a.kind != ActionKind::Forward && a.kind != ActionKind::Backward) return {};
  const int of_a_copy = schedule_.stages() / schedule_.copies;
  const int own = schedule_.stage_of[index(at.rank)][index(a.chunk)];
  const int stage = own + (a.kind == ActionKind::Forward ? step : -step);
  if (stage < 0 || stage / of_a_copy != own / of_a_copy) return {};
  return ActionAt{places_[index(stage)].rank, positions_[slot(a.kind, stage, a.micro_batch)]};
}

std::string circle_text(const Handovers& handovers, const std::vector<std::size_t>& done,
                        Sends sends, int rank) {
  std::vector<int> way;  // each rank waits for the next
  // From each rank to the one that it waits for, until one comes again: from there on it is a
  // circle.
  while (std::find(way.begin(), way.end(), rank) == way.end()) {
    way.push_back(rank);
    const auto wait = wait_of(handovers, done, sends, rank);
    if (!wait)
      return fmt::format("rank {} has done {} of {} actions and waits for no other", rank,
                         done.at(index(rank)), handovers.schedule().actions[index(rank)].size());
    rank = wait->first;
  }
  way.erase(way.begin(), std::find(way.begin(), way.end(), rank));
  std::rotate(way.begin(), std::min_element(way.begin(), way.end()), way.end());
  std::string circle, reasons;
  for (const int r : way) {
    circle += fmt::format("{} -> ", r);
    reasons += fmt::format("{} {}", reasons.empty() ? ":" : ";",
                           wait_of(handovers, done, sends, r)->second);
  }
  if (way.size() == 1) return fmt::format("rank {} waits for itself{}", way[0], reasons);
  return fmt::format("ranks {}{} wait for each other{}", circle, way[0], reasons);
}

}  // namespace aisc
