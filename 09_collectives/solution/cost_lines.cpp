// p ranks, n bytes, L = ceil(log2 p); a latency, b seconds per byte, g seconds per byte added.
#include "09_collectives/solution/cost_formulas.h"

#include <algorithm>
#include <cmath>

#include "09_collectives/cost_parts.h"

namespace aisc {
namespace {

// Of one rank that copies `in` to `out`.
constexpr Cost kCopy{.steps = 1};

// p - 1 steps, in each of which every rank passes n / p on.
Cost passed_round(int p, double n, const Network& network) {
  const double others = p - 1, chunk = n / p;
  return {.steps = p - 1,
          .messages = p - 1,
          .bytes = others * chunk,
          .total_bytes = others * n,
          .seconds = others * message_seconds(network, chunk)};
}

// One step, in which every rank sends `part` to every other.
Cost all_to_each_other(int p, double part, const Network& network) {
  const double others = p - 1;
  return {.steps = 1,
          .messages = p - 1,
          .bytes = others * part,
          .total_bytes = others * p * part,
          .seconds = message_seconds(network, others * part)};
}

// One step, in which one rank sends `part` to every other.
Cost one_to_all(int p, double part, const Network& network) {
  Cost cost = all_to_each_other(p, part, network);
  cost.total_bytes = cost.bytes;
  return cost;
}

// A rank adds so many bytes, so many times, while no message is under way to it.
void add(Cost& cost, int times, double bytes, const Network& network) {
  cost.added_bytes = times * bytes;
  cost.seconds += adding_seconds(network, cost.added_bytes);
}

// Where chunk i of p begins, p: where the last ends. Of F32, where n does not divide.
double chunk_begin(int i, int p, double n) { return 4 * std::floor(n / 4 * i / p); }

// Each rank of a binomial tree but the root gets, or sends, the chunks of its subtree: all of these
// messages together.
double subtree_bytes(int p, double n) {
  double bytes = 0;
  for (int v = 1; v < p; ++v)
    bytes += chunk_begin(std::min(v + (v & -v), p), p, n) - chunk_begin(v, p, n);
  return bytes;
}

// When the root of a binomial tree of so many ranks has their chunks. Messages climb: a child sends
// when it has its own children's, and its parent takes them in the order of their subtrees' sizes,
// 1, 2, 4, ... A full subtree's message is sent when the parent has just taken the ones before,
// since both have done the same until then. The last subtree may be smaller and its message early:
// what falls into the time before is no longer waited for.
double gathered_seconds(int ranks, double chunk, const Network& network) {
  double link_free = 0;
  for (int bit = 1; bit < ranks; bit *= 2) {
    const int child = std::min(bit, ranks - bit);
    const double sent = child == bit ? link_free : gathered_seconds(child, chunk, network);
    link_free = std::max(sent + network.link.latency_seconds, link_free) +
                child * chunk * network.link.seconds_per_byte;
  }
  return link_free;
}

// The same for sums, of n bytes each. While the root adds one message the next may come in.
double reduced_seconds(int ranks, double bytes, const Network& network) {
  double link_free = 0, added = 0;
  for (int bit = 1; bit < ranks; bit *= 2) {
    const int child = std::min(bit, ranks - bit);
    const double sent = child == bit ? added : reduced_seconds(child, bytes, network);
    link_free = std::max(sent + network.link.latency_seconds, link_free) +
                bytes * network.link.seconds_per_byte;
    added = std::max(added, link_free) + adding_seconds(network, bytes);
  }
  return added;
}

}  // namespace

// To rank 0, one behind the other on its link in; and from it, on its link out.
Cost naive_all_reduce_cost(int p, double n, const Network& network, const Tuning&) {
  if (p == 1) return {};
  Cost cost = one_to_all(p, n, network);
  cost.steps = 2;
  cost.total_bytes *= 2;
  cost.seconds *= 2;
  add(cost, p - 1, n, network);
  return cost;
}

Cost ring_reduce_scatter_cost(int p, double n, const Network& network, const Tuning&) {
  if (p == 1) return kCopy;
  Cost cost = passed_round(p, n, network);
  add(cost, p - 1, n / p, network);
  return cost;
}

Cost ring_all_gather_cost(int p, double n, const Network& network, const Tuning&) {
  return p == 1 ? kCopy : passed_round(p, n, network);
}

Cost dissemination_barrier_cost(int p, double, const Network& network, const Tuning&) {
  const int L = log2_up(p);
  return {.steps = L, .messages = L, .seconds = L * message_seconds(network, 0)};
}

// The root adds L times.
Cost tree_reduce_cost(int p, double n, const Network& network, const Tuning&) {
  if (p == 1) return kCopy;
  const int L = log2_up(p);
  return {.steps = L,
          .messages = 1,
          .bytes = n,
          .added_bytes = L * n,
          .total_bytes = (p - 1) * n,
          .seconds = reduced_seconds(p, n, network)};
}

Cost tree_all_reduce_cost(int p, double n, const Network& network, const Tuning& tuning) {
  if (p == 1) return {};
  Cost cost = binomial_broadcast_cost(p, n, network, tuning);
  const Cost up = tree_reduce_cost(p, n, network, tuning);
  cost.steps += up.steps;
  cost.added_bytes = up.added_bytes;
  cost.total_bytes += up.total_bytes;
  cost.seconds += up.seconds;
  return cost;
}

Cost direct_all_reduce_cost(int p, double n, const Network& network, const Tuning&) {
  if (p == 1) return {};
  Cost cost = all_to_each_other(p, n, network);
  add(cost, p - 1, n, network);
  return cost;
}

Cost direct_reduce_scatter_cost(int p, double n, const Network& network, const Tuning&) {
  if (p == 1) return kCopy;
  Cost cost = all_to_each_other(p, n / p, network);
  add(cost, p - 1, n / p, network);
  return cost;
}

Cost direct_all_gather_cost(int p, double n, const Network& network, const Tuning&) {
  return p == 1 ? kCopy : all_to_each_other(p, n / p, network);
}

Cost direct_broadcast_cost(int p, double n, const Network& network, const Tuning&) {
  return p == 1 ? Cost{} : one_to_all(p, n, network);
}

Cost direct_scatter_cost(int p, double n, const Network& network, const Tuning&) {
  return p == 1 ? kCopy : one_to_all(p, n / p, network);
}

// The scatter backwards: each sends one message, and they pass the root's link in.
Cost direct_gather_cost(int p, double n, const Network& network, const Tuning&) {
  if (p == 1) return kCopy;
  Cost cost = one_to_all(p, n / p, network);
  cost.messages = 1;
  cost.bytes = n / p;
  return cost;
}

Cost binomial_broadcast_cost(int p, double n, const Network& network, const Tuning&) {
  const int L = log2_up(p);
  return {.steps = L,
          .messages = L,
          .bytes = L * n,
          .total_bytes = (p - 1) * n,
          .seconds = L * message_seconds(network, n)};
}

Cost binomial_scatter_cost(int p, double n, const Network& network, const Tuning&) {
  if (p == 1) return kCopy;
  const int L = log2_up(p);
  const double bytes = (p - 1) * (n / p);
  return {.steps = L,
          .messages = L,
          .bytes = bytes,
          .total_bytes = subtree_bytes(p, n),
          .seconds = L * message_seconds(network, 0) + bytes * network.link.seconds_per_byte};
}

// Most is sent by the root's last child, or by the one before, whose subtree is full.
Cost binomial_gather_cost(int p, double n, const Network& network, const Tuning&) {
  if (p == 1) return kCopy;
  const int highest = 1 << (log2_up(p) - 1);  // the last child
  return {.steps = log2_up(p),
          .messages = 1,
          .bytes = std::max(highest / 2, p - highest) * (n / p),
          .total_bytes = subtree_bytes(p, n),
          .seconds = gathered_seconds(p, n / p, network)};
}

// The root has k steps, a rank in the middle one more.
Cost chain_broadcast_cost(int p, double n, const Network& network, const Tuning& tuning) {
  if (p == 1) return {};
  const int k = tuning.segments;
  return {.steps = p == 2 ? k : k + 1,
          .messages = k,
          .bytes = n,
          .total_bytes = (p - 1) * n,
          .seconds = (p - 2 + k) * message_seconds(network, n / k)};
}

// The root sends most, in both halves: L messages down the tree, p - 1 into the ring.
Cost van_de_geijn_cost(int p, double n, const Network& network, const Tuning& tuning) {
  if (p == 1) return {};
  const Cost scatter = binomial_scatter_cost(p, n, network, tuning);
  Cost cost = passed_round(p, n, network);
  cost.steps += scatter.steps;
  cost.messages += scatter.messages;
  cost.bytes += scatter.bytes;
  // In the ring every rank but the root gets all chunks but its own.
  cost.total_bytes = scatter.total_bytes + (p - 2) * n + chunk_begin(1, p, n);
  cost.seconds += scatter.seconds;
  return cost;
}

}  // namespace aisc
