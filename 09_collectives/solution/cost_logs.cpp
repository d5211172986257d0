// Where ranks differ, in what they send and when they begin, the last one is followed: with a Fold
// that is number v = 0, which begins late, after its pair has met, and has the largest blocks.
#include "09_collectives/solution/cost_formulas.h"

#include <fmt/format.h>

#include <algorithm>

#include "09_collectives/cost_parts.h"
#include "common/comm/fold.h"
#include "common/core/error.h"

namespace aisc {
namespace {

// How many ranks stand behind the first d numbers of those that go on.
int ranks_of_first(const Fold& fold, int d) { return d + std::min(d, fold.pairs); }

}  // namespace

// Number 0 adds the chunks of the first d numbers, which number d sends it, and sends those of the
// next d. Number d is as late, if it is a pair's, or still early: then what it sends has been there
// for long, unless the link in is still busy with the buffer of number 0's partner.
Cost recursive_halving_cost(int ranks, double bytes, const Network& network, const Tuning&) {
  const Fold fold(0, ranks);
  const bool folds = fold.pairs > 0;
  const double chunk = bytes / ranks;
  double now = 0, in_free = 0;  // of number 0
  double other = 0;             // when number d begins its step
  Cost cost;
  if (folds) {
    in_free = message_seconds(network, bytes);
    now = in_free + adding_seconds(network, bytes);
    cost.added_bytes = bytes;
  }
  for (int d = fold.q / 2; d >= 1; d /= 2) {
    const double kept = chunk * ranks_of_first(fold, d);
    const double given = chunk * ranks_of_first(fold, 2 * d) - kept;
    if (d < fold.pairs) other = now;
    in_free = std::max(other + network.link.latency_seconds, in_free) +
              kept * network.link.seconds_per_byte;
    now = std::max(now + message_seconds(network, given), in_free) + adding_seconds(network, kept);
    other += message_seconds(network, kept) + adding_seconds(network, kept);
    cost.added_bytes += kept;
  }
  const int L = log2_down(ranks);
  cost.steps = std::max(1, L + (folds ? 2 : 0));  // one rank alone copies
  cost.messages = L + (folds ? 1 : 0);
  cost.bytes = folds ? bytes : bytes - chunk;  // all of its buffer: a rank that does not go on
  cost.total_bytes = (ranks - 1) * bytes + fold.pairs * chunk;
  cost.seconds = now + (folds ? message_seconds(network, chunk) : 0);
  return cost;
}

// The first block is always the largest, and no later than any other.
Cost recursive_doubling_all_gather_cost(int ranks, double bytes, const Network& network,
                                        const Tuning&) {
  const Fold fold(0, ranks);
  const bool folds = fold.pairs > 0;
  const double chunk = bytes / ranks;
  Cost cost;
  if (folds)
    cost.seconds = message_seconds(network, chunk) + message_seconds(network, bytes - chunk);
  cost.bytes = folds ? bytes - chunk : 0;
  for (int d = 1; d < fold.q; d *= 2) {
    const double block = chunk * ranks_of_first(fold, d);
    cost.seconds += message_seconds(network, block);
    cost.bytes += block;
  }
  const int L = log2_down(ranks);
  cost.steps = std::max(1, L + (folds ? 2 : 0));
  // A partner whose chunk is not the first gets what is before and what is behind it.
  cost.messages = L + std::min(fold.pairs, 2);
  cost.total_bytes = (ranks - 1) * bytes;
  return cost;
}

Cost bruck_all_gather_cost(int ranks, double bytes, const Network& network, const Tuning&) {
  const int L = log2_up(ranks);
  Cost cost;
  cost.steps = std::max(1, L);
  cost.messages = L;
  cost.bytes = bytes - bytes / ranks;
  cost.total_bytes = (ranks - 1) * bytes;
  cost.seconds = L * message_seconds(network, 0) + cost.bytes * network.link.seconds_per_byte;
  return cost;
}

// Of the numbers below p, p / (2 d) d have the bit d in whole periods of 2 d, and of the rest those
// from d on. The first step packs, and sends nothing.
Cost bruck_all_to_all_cost(int ranks, double bytes, const Network& network, const Tuning&) {
  const int L = log2_up(ranks);
  int moved = 0;
  for (int d = 1; d < ranks; d *= 2)
    moved += ranks / (2 * d) * d + std::max(0, ranks % (2 * d) - d);
  Cost cost;
  cost.steps = 1 + L;
  cost.messages = L;
  cost.bytes = bytes / ranks * moved;
  cost.total_bytes = moved * bytes;
  cost.seconds = L * message_seconds(network, 0) + cost.bytes * network.link.seconds_per_byte;
  return cost;
}

// Nodes of g ranks, one chunk each; the last may have h < g, each with up to k = ceil(g / h)
// chunks: within a node a rank with k of them sets the pace, and in the rings too, where k rings
// share its link. Afterwards that rank and the last of its neighbours in node 0 end at the same
// time.
Cost two_level_cost(int ranks, double bytes, const Network& network, const Tuning& tuning) {
  const int g = tuning.ranks_per_node;
  if (g < 1) fail(fmt::format("cost of two_level: ranks_per_node {}, at least 1 expected", g));
  const int m = (ranks + g - 1) / g;
  const int h = ranks - (m - 1) * g, k = (g + h - 1) / h;
  const double chunk = bytes / g, piece = chunk / m;
  // Chunks that one rank receives in its node, in the last one and, if there is one, in a full one.
  const int from_last = (h - 1) * k, from_full = m > 1 ? g - 1 : 0;
  const int received = std::max(from_last, from_full);
  Cost cost;
  cost.steps = (received > 0 ? 2 : 0) + 2 * (m - 1);
  cost.messages = std::max(g - k + from_last + 2 * (m - 1) * k, 2 * from_full + 2 * (m - 1));
  cost.bytes = std::max((g - k + from_last) * chunk + 2 * (m - 1) * k * piece,
                        2 * from_full * chunk + 2 * (m - 1) * piece);
  cost.added_bytes =
      std::max(from_last * chunk + (m - 1) * k * piece, from_full * chunk + (m - 1) * piece);
  cost.total_bytes = 2 * (ranks - 1) * bytes;
  if (received > 0)
    cost.seconds =
        2 * message_seconds(network, received * chunk) + adding_seconds(network, received * chunk);
  cost.seconds +=
      (m - 1) * (2 * message_seconds(network, k * piece) + adding_seconds(network, k * piece));
  return cost;
}

}  // namespace aisc
