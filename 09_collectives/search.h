// Which rings a machine has room for: the search that NCCL makes when it starts
// (src/graph/search.cc). Several orders of the GPUs at once, channels, of which each carries the
// same.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "09_collectives/topology.h"

namespace aisc {

// Ranks in the order in which messages pass.
using Order = std::vector<int>;

struct Channels {
  std::vector<Order> orders{};
  double bytes_per_second = 0;  // of each
  double total_bytes_per_second() const {
    return static_cast<double>(orders.size()) * bytes_per_second;
  }
};

// The search tries one rate of the channels after the other, the highest first, and packs as many
// channels as find room: depth first, one GPU after the other, back where a wire would have to
// carry more than it can. The most bytes per second in total win, of equal ones the fewest
// channels. First with NVLink alone; only where no channel exists so, as NCCL does, with ways
// through one PCIe switch, through a processor, from processor to processor. The same machine gives
// the same result.
struct SearchLimits {
  std::int64_t steps = 1 << 15;  // for each rate; then the best so far counts
  int most_channels = 32;
};

// Rings: the last of an order sends to the first. What each carries in its direction fits on every
// wire, all rings at the same time. In a cluster a ring goes through all GPUs of one node, the same
// way in every node, and on to the next node. Throws Error for fewer than 2 ranks, for nodes that
// differ in their number of GPUs, or where no ring of any rate was found within the limits.
Channels find_rings(const Topology& topology, const SearchLimits& limits = {});

// Trees. In a node NCCL's trees are chains, "GPU a -> GPU b -> .. -> GPU x" (search.cc, "Search
// Patterns"): sums go up the chain and results come down, so each hop takes room in both
// directions. In a cluster the chains of all nodes are the same, and their first GPUs are the ranks
// of two trees over the nodes (double_tree.h): each has at most two parents and two children there,
// with half of the data each, so it sends, up and down, twice what its chain carries, and receives
// as much. An order is the chain through node 0, then that through node 1, and so on. Throws Error
// as find_rings.
Channels find_chains(const Topology& topology, const SearchLimits& limits = {});

// How often rings cross each wire, in a step in which every rank sends to the next of each ring.
std::vector<int> crossings(const Topology& topology, std::span<const Order> rings);
// What each of several rings carries when all work at once: of the wires crossed, the slowest, its
// rate divided by the crossings. For every order, not only those found: 0 where there is no ring.
double ring_bytes_per_second(const Topology& topology, std::span<const Order> rings);

}  // namespace aisc
