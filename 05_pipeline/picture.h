// A simulated schedule as a picture: for a terminal, and for those who draw timelines.
#pragma once

#include <string>
#include <vector>

#include "05_pipeline/simulate.h"
#include "common/train/timeline.h"

namespace aisc {

// A line a rank, at most `columns` (at least 1) of time: each action is its name ("F3", "B3.1"),
// drawn out with "-" to its length, its letter alone where the name has no room; idle is ".". If
// there is room, the shortest action is a whole number of columns. Below, how long it takes and
// both bubbles:
//
//   rank 0 |F0F1....B0--..B1--|
//   rank 1 |..F0B0--F1B1--....|
//   9 s; idle 50 % of the ideal time, 33.3 % of the total
//
// "" where nothing takes time. Throws Error for columns < 1.
std::string picture_text(const Simulation& simulation, int columns = 100);

// The same as rows that are drawn like a run's (common/train/timeline.h): each rank's actions, and
// in a row below what it sends, where that takes time.
std::vector<TimelineRow> timeline_of(const Simulation& simulation);

}  // namespace aisc
