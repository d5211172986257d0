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

}  // namespace aisc
