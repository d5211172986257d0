// Yours to write; from 09_collectives/solution/bruck.cpp (stub a5eaeaf40744).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
// Chunks are held in scratch in a turned order, that begins with this rank's own. Copies run at the
// end of the step that they stand in.
#include "09_collectives/bruck.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "common/core/error.h"

namespace aisc {
namespace {

using Where = Piece::Where;

// i counted round, for i >= -size.
int wrap(int i, int size) { return (i + size) % size; }

}  // namespace

Plan bruck_all_gather(const Collective& c, int rank, int size) {
  // LAB 09.9: Bruck
  // Who lacks what after the steps of distance 1, 2, ..., d / 2? And in the last step, where p is
  // no power of two?
  throw NotImplemented("lab 09.9: Bruck", __FILE__, __LINE__);
  // END LAB 09.9
}

Plan bruck_all_to_all(const Collective& c, int rank, int size) {
  // LAB 09.9: Bruck
  // A chunk that has to go 5 ranks to the right goes 1 and 4. After all steps: from whom is what
  // lies at place i? Copies before the first message need a step of their own.
  throw NotImplemented("lab 09.9: Bruck", __FILE__, __LINE__);
  // END LAB 09.9
}

}  // namespace aisc
