// Plans made of plans: several side by side, each on its own part of the buffer, or one after the
// other. Rings over several orders, two trees, two levels are made so.
#pragma once

#include <span>
#include <vector>

#include "common/comm/plan.h"

namespace aisc {

// `plan` with all its pieces of Out moved by `elements`: a plan made for a short buffer works on a
// part of a longer one. Of In and scratch nothing changes.
Plan moved(Plan plan, std::int64_t elements);

// Step s of the result is step s of every plan, their actions in the order of `plans`; who has no
// step s is left out. Each keeps scratch of its own. The plans must not touch the same elements;
// and where two of them send to the same peer, both ranks list them in the same order and in the
// same steps, since messages match first in first out. (Steps without actions vanish, so buffers so
// short that pieces are empty may break that.)
Plan side_by_side(std::string name, std::span<const Plan> plans);

// `next` begins where `plan` ends. Both use the same scratch.
void append(Plan& plan, const Plan& next);

// The number of ranks a power of two: of p ranks, q <= p < 2q, the first 2 (p - q) pair up; the odd
// one of each pair goes on for both, so that q ranks go on, numbered v = 0 .. q - 1.
struct Fold {
  Fold(int rank, int size);
  int q = 1;
  int pairs = 0;        // p - q
  bool paired = false;  // this rank is one of a pair
  bool goes_on = true;  // false: its partner does
  int partner = -1;     // of a pair
  int v = -1;           // this rank's number among the q, or its partner's
  int rank_of(int w) const { return w < pairs ? 2 * w + 1 : w + pairs; }
};

}  // namespace aisc
