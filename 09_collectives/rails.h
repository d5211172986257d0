// All-to-all between nodes with as many network cards as GPUs. Card l of every node hangs at the
// same switch, rail l. A message from GPU l to GPU l' of another node has to cross rails, or change
// GPUs first (NCCL 2.12, "PXN": PCI x NVLink).
#pragma once

#include "common/comm/plan.h"

namespace aisc {

// m nodes: ranks [k g, (k + 1) g) are node k. First, in its own node, a rank gives rank l all that
// is for the ranks l of any node, in g - 1 steps of one message, to l + 1 first. Then rank l sends
// each other node's rank l all that came together for it, g chunks in one message, in m - 1 steps,
// to the next node first. So no message crosses rails, there are g times fewer between nodes, and
// no two share a wire at the same time. Steps: 1 that packs, g - 1, m - 1; other copies stand in
// one of these. A step before all that only packs. Bytes: n (g - 1) / g in the node, n (m - 1) / m
// to others. Throws Error for g < 1, where g does not divide size, and for an all_to_all_v, whose
// counts differ.
Plan rail_all_to_all(const Collective& c, int rank, int size, int ranks_per_node);

}  // namespace aisc
