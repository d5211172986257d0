// All-reduce where some links are faster than others: within a node first, so that what crosses
// between nodes is 1/g of the buffer per rank.
#pragma once

#include "common/comm/plan.h"

namespace aisc {

// Ranks [k g, (k + 1) g) are node k, with g ranks_per_node; the last node may have fewer. The
// buffer is cut into g chunks, chunk_of(Out, n, i, g); in a node of h ranks chunk i belongs to its
// rank i % h. Within the node every rank sends each other rank the chunks that belong to it, its
// neighbour on the right first, and receives in the same order, from its neighbour on the left
// first; it adds the parts of all ranks of the node, its own at its place, in the order of ranks.
// Then, for each chunk, a ring all-reduce over its owners, one in each node; then owners send their
// chunks to the others in their node, again to the right first. m nodes of g: 2 + 2 (m - 1) steps;
// bytes to other nodes 2 n / g (m - 1) / m, within the node 2 n (g - 1) / g. Throws Error for
// ranks_per_node < 1.
Plan two_level_all_reduce(const Collective& c, int rank, int size, int ranks_per_node);

}  // namespace aisc
