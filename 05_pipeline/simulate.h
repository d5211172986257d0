// How long a schedule takes, from the seconds of its actions and messages: begin and end of
// everything, exactly, without a model or a clock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "05_pipeline/schedule.h"

namespace aisc {

// Seconds of one micro-batch on one stage; update is that of the optimizer's step on it. A backward
// takes backward + weight_gradient where the schedule does not split them, so that the same costs
// fit all schedules.
struct ActionCosts {
  double forward = 0, backward = 0, weight_gradient = 0, update = 0;
};

// The way between two ranks: each pair has one in each direction for forward, and another one for
// backward. What passes a boundary between stages is b s h elements, the same in both.
struct LinkCosts {
  double latency_seconds = 0, seconds_per_byte = 0;
  std::int64_t bytes = 0;  // of a message
};

struct TimedAction {
  Action action;
  double begin_seconds, end_seconds;
};

// Sent after `action`, whose kind is its direction.
struct TimedMessage {
  Action action;
  int to;                                 // a rank
  double begin_seconds, arrives_seconds;  // its first byte leaves, its last is there
};

struct Traffic {
  std::int64_t messages = 0, bytes = 0;
};

struct RankTimes {
  std::vector<TimedAction> actions;  // in the order of the rank's list
  std::vector<TimedMessage> sent;    // in this order
  Traffic forward, backward;         // what it sent
  double busy_seconds = 0;           // of its actions
  double idle_seconds = 0;           // the rest of the total
  int most_in_flight = 0;            // see list_checks.h
};

struct Simulation {
  std::string name;
  int chunks = 1;
  std::vector<RankTimes> ranks = {};
  double total_seconds = 0;  // the end of the last action
};

// Each rank runs its list in order. An action begins when its rank is free and its input is there.
// Its message begins to leave when it is over and the last byte of the message before it on this
// link has left, and arrives after bytes * seconds_per_byte + latency_seconds; latencies overlap,
// and the rank goes on meanwhile. Between stages of the same rank nothing is sent. `costs` are one
// for all stages or one for each. Sums are in the order of events, so that costs that are small
// integers or powers of two give exact times.
//
// Two ranks, one micro-batch, forward 1, backward 2, latency 1 and no bytes: F0 of rank 0 from 0 to
// 1, of rank 1 from 2 to 3, B0 of rank 1 from 3 to 5, of rank 0 from 6 to 8.
//
// Throws Error for lists that are not complete and for ranks that wait for each other, with the
// words of problems(); for another number of costs, and for negative ones.
Simulation simulate(const Schedule& schedule, const std::vector<ActionCosts>& costs,
                    const LinkCosts& link = {});

// The bubble, idle time, in the two ways of the literature. Where all ranks have the same to do:
// idle seconds over those of an ideal pipeline, m (tf + tb): (p - 1) / m of GPipe and of 1F1B
// (Narayanan et al., arXiv 2104.04473, section 2.2.1). Else those of all ranks over their busy
// ones. 0 where nothing takes time.
double bubble_of_ideal(const Simulation& simulation);
// Idle seconds over the total: (p - 1) / (m + p - 1) (Huang et al., arXiv 1811.06965, section 2.3;
// Qi et al., arXiv 2401.10241: "bubble rate"). Of y = bubble_of_ideal() it is y / (1 + y).
double bubble_of_total(const Simulation& simulation);

}  // namespace aisc
