// Formulas of double_tree.h and in_network.h.
#include "09_collectives/solution/cost_formulas.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <vector>

#include "09_collectives/cost_parts.h"
#include "common/core/error.h"

namespace aisc {
namespace {

// What passes on the longest way, up and down together.
struct LongestWay {
  double messages = 0;  // one after the other: latencies
  double passed = 0;    // segments through a link
  double added = 0;     // segments
};

// Rounds follow one another: what a rank sends in one it has heard in the one before. A round takes
// one latency, two segments through each link (to two parents, from two children) and, on the way
// up, two additions. Less: the last message to a root and the first from one are alone in their
// rounds. With 2^i + 1 ranks so is the message below it, unless there are other segments beside
// which it passes.
//
// Four ranks, k = 2, the six rounds that double_tree.cpp shows:
//   messages   1 + 1 + 1 up,                       1 + 1 + 1 down: 6
//   passed     2 + 2 + 1 up (to 2, to 2, to 0),    1 + 2 + 2 down: 10
//   added      2 + 2 + 1 up (by 2, by 2, by 0),        none down:  5
// For 128 bytes in segments of 32, a = 1 s, b = 1/4 s and g = 1/16 s a byte these are
// 6 * 1 + 10 * 8 + 5 * 2 = 96 s.
LongestWay longest_way(int ranks, int k, const Network& network) {
  if (ranks == 2) return {.messages = 2.0 * k, .passed = 2.0 * k, .added = 1.0 * k};
  const double rounds = log2_up(ranks) + k - 1;
  LongestWay way{.messages = 2 * rounds, .passed = 4 * rounds - 2, .added = 2 * rounds - 1};
  if (k == 1 && std::has_single_bit(static_cast<unsigned>(ranks - 1))) {
    way.passed -= 2;
    way.added -= 1;
  } else if (ranks == 3) {
    // Rank 2 sends both halves to rank 0: on the way up two segments leave the one and two are
    // added by the other in each round, and whichever takes longer is what counts.
    const Link& link = network.link;
    const bool links_are_slower = link.seconds_per_byte > network.reduce_seconds_per_byte;
    way.passed = 3.0 * k + 2 + (links_are_slower ? k - 2 : 0);
    way.added = k + 2.0 + (links_are_slower ? 0 : k - 2);
  }
  return way;
}

double seconds_of(int ranks, double bytes, const Network& network, int k) {
  if (ranks == 1) return 0;
  const LongestWay way = longest_way(ranks, k, network);
  const double segment = bytes / 2 / k;
  return way.messages * network.link.latency_seconds +
         way.passed * segment * network.link.seconds_per_byte +
         way.added * segment * network.reduce_seconds_per_byte;
}

// Rounds [start, start + k) for each start: how many in all. `starts` is sorted.
int count_rounds(int k, std::initializer_list<int> starts) {
  int count = k;
  for (auto start = starts.begin(); start + 1 != starts.end(); ++start)
    count += std::min(k, start[1] - start[0]);
  return count;
}

// Rounds of the way up in which the busiest rank has something to do: as a leaf of one tree it
// sends from round 0 on; above h levels of the other tree it hears from round h - 1 on, and sends
// from round h' - 1 on, when its sibling, with which it has the same parent above h' levels, does.
// Here h is `levels` and h' is `above`. The less h and h' have in common the more rounds these are,
// so the busiest stands on the right edge of its tree, on a place that is made of the first bits of
// p - 1. Rank 0 of an odd number of ranks is the root of one tree and the last place of the other.
//
// Four ranks, k = 2: rank 2 sends as a leaf in the rounds 0 and 1, hears from its children, h = 1,
// in the same two, and sends to the root, h' = 2, in the rounds 1 and 2: 3 rounds, or 6 steps with
// the way down.
int busiest_rounds(int ranks, int k) {
  const int last = ranks - 1, depth = log2_up(ranks);
  int most = count_rounds(k, {0, depth - 1});
  int above = depth;  // levels
  for (int levels = depth - 1; levels >= 1; --levels) {
    if ((last >> levels) % 2 == 0) continue;
    most = std::max(most, count_rounds(k, {0, levels - 1, above - 1}));
    if (last % (1 << levels) == 0)
      most = std::max(most, count_rounds(k, {levels - 1, above - 1, depth - 1}));
    above = levels;
  }
  return most;
}

}  // namespace

Cost double_tree_cost(int ranks, double bytes, const Network& network, const Tuning& tuning) {
  if (ranks == 1) return {};
  const int k = tuning.segments;
  const double half = bytes / 2;
  const int edges = std::min(ranks, 4);  // of the rank that has most, counted up and down
  return {.steps = 2 * busiest_rounds(ranks, k),
          .messages = std::int64_t{edges} * k,
          .bytes = edges * half,
          .added_bytes = ranks == 2 ? half : bytes,
          .total_bytes = 2 * (ranks - 1) * bytes,
          .seconds = seconds_of(ranks, bytes, network, k)};
}

// In double_tree.h's formula R = L + k - 1 and m = n / 2 k, so that seconds fall into what does not
// depend on k, 2 (L - 1) a + 2 n b + n g, what each segment adds, 2 k a, and what more segments
// share, c / k. The sum of the latter two is least where they are equal, as a rule between two
// whole numbers. One segment, of which some terms are less, is looked at by itself.
//
// Four ranks, 128 bytes, a = 1 s, b = 1/4 s, g = 1/16 s: c = 1 * 128 (1/4 + 1/32) = 36 s, least
// between 4 and 5; 2 * 4 + 36 / 4 = 17 s, 2 * 5 + 36 / 5 = 17.2 s: 4 segments, 74 + 17 s in all.
int best_double_tree_segments(int ranks, double bytes, const Network& network, int most) {
  if (most < 1)
    fail(fmt::format("best_double_tree_segments: at most {} segments, at least 1 expected", most));
  const double a = network.link.latency_seconds, b = network.link.seconds_per_byte;
  const double g = network.reduce_seconds_per_byte;
  double shared = 0;  // c: the seconds that k segments share among them
  if (ranks == 3) shared = bytes * std::min(b, g);
  if (ranks >= 4) shared = (2 * log2_up(ranks) - 3) * bytes * (b + g / 2);
  const double limit = std::min<double>(most, std::max(1.0, std::floor(bytes / 2)));
  const double least = a > 0 ? std::floor(std::sqrt(shared / (2 * a))) : limit;
  int best = 1;
  for (const double k : {2.0, least, least + 1}) {
    const int candidate = static_cast<int>(std::clamp(k, 1.0, limit));
    const double seconds = seconds_of(ranks, bytes, network, candidate);
    if (seconds < seconds_of(ranks, bytes, network, best)) best = candidate;
  }
  return best;
}

// On a flat network this would need a link of its own for each rank at the switch: only `link` is
// looked at.
Cost in_network_cost(int ranks, double bytes, const Network& network, const Tuning& tuning) {
  const int k = tuning.segments, holders = ranks - 1;
  return {.steps = k + 1,
          .messages = std::int64_t{holders} * k,
          .bytes = holders * bytes,
          .added_bytes = (holders - 1) * bytes,
          .total_bytes = 2 * holders * bytes,
          .seconds = (k + 1) * message_seconds(network, bytes / k)};
}

}  // namespace aisc
