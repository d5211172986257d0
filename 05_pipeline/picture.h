// A simulated schedule as a picture: for a terminal, and as SVG in the colours of the course.
#pragma once

#include <string>

#include "05_pipeline/simulate.h"

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

// The same as an SVG that stands alone: forward blue, backward green, weight gradient grey, update
// purple, idle white, each with its micro-batch; every second chunk paler. What is sent and takes
// time is orange, below the rank that sends it.
std::string picture_svg(const Simulation& simulation);

}  // namespace aisc
