// What a look at the lists of a schedule tells, without running them.
#pragma once

#include <string>
#include <vector>

#include "05_pipeline/handovers.h"
#include "05_pipeline/schedule.h"

namespace aisc {

// The problems() of each list by itself: a forward and a backward (and a weight gradient where the
// schedule splits it off) of each micro-batch on each chunk, once and in this order; updates after
// the gradients of all micro-batches up to theirs, each with one more at least. There need not be
// updates. A stage that is nowhere or twice is a problem, too, and so are stages that are not
// equally many for each copy of the model.
std::vector<std::string> list_problems(const Schedule& schedule);

// For each pair of ranks and direction (forward and backward have communicators of their own) the
// first message that the receiver takes for another: the k-th one sent is the k-th one received.
std::vector<std::string> message_problems(const Handovers& handovers);

// By rank: the most that lies at once between a forward and the action `until` of the same
// micro-batch and chunk, in units of one stage's activations. With WeightGradient what a schedule
// that splits them off keeps longer counts as a whole; of one that does not, it is Backward. The
// lists must be complete.
std::vector<int> most_in_flight(const Schedule& schedule, ActionKind until = ActionKind::Backward);

}  // namespace aisc
