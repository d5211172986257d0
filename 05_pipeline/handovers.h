// Which action takes the result of which, and which ranks wait for which.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "05_pipeline/schedule.h"

namespace aisc {

// The action number `position` (from 0) of a rank's list.
struct ActionAt {
  int rank = 0;
  std::size_t position = 0;
  bool operator==(const ActionAt&) const = default;
};

// Which action takes the result of which, in a schedule whose lists are complete (list_problems()
// finds nothing).
class Handovers {
 public:
  // Throws Error where stage_places() does.
  explicit Handovers(const Schedule& schedule);

  // The action whose result this one takes: of a forward the same micro-batch's forward of the
  // stage before, of a backward the backward of the stage after. It may be of the same rank: then
  // nothing is sent. Nothing for the first stage's forward and the last stage's backward (of each
  // copy of the model), weight gradients and updates.
  std::optional<ActionAt> source_of(ActionAt at) const { return neighbour(at, -1); }
  // The action that takes this one's result.
  std::optional<ActionAt> target_of(ActionAt at) const { return neighbour(at, 1); }

  const Schedule& schedule() const { return schedule_; }
  const Action& action(ActionAt at) const;
  std::string name(ActionAt at) const;  // to_string()

 private:
  std::optional<ActionAt> neighbour(ActionAt at, int step) const;
  std::size_t slot(ActionKind kind, int stage, int micro_batch) const;

  const Schedule schedule_;
  const std::vector<StagePlace> places_;
  std::vector<std::size_t> positions_;  // in its rank's list, by slot
};

// A send begins when its action is over. Started: the rank goes on at once. Blocking: it goes on
// when the receiver has begun the action that takes the message (rendezvous: MPI_Ssend, or MPI_Send
// of a long message).
enum class Sends { Started, Blocking };

// Where the ranks have done `done` actions each and `rank` cannot go on: the circle of ranks that
// wait for each other to which it leads, from its smallest rank on, and what each waits for.
// "ranks 0 -> 1 -> 0 wait for each other: rank 0 cannot begin B0 before rank 1 has done B0; ..."
std::string circle_text(const Handovers& handovers, const std::vector<std::size_t>& done,
                        Sends sends, int rank);

}  // namespace aisc
