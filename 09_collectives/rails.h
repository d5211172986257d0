// All-to-all between nodes with as many network cards as GPUs. Card l of every node hangs at the
// same switch, rail l. A message from GPU l to GPU l' of another node has to cross rails, or change
// GPUs first (NCCL 2.12, "PXN": PCI x NVLink).
#pragma once

#include "common/comm/plan.h"

namespace aisc {

// Ranks [k g, (k + 1) g) are node k; size is a multiple of g, counts are equal, else Error. Step 1:
// in its own node a rank gives rank l everything that is for the ranks l of other nodes (and what
// is for rank l itself). Step 2: rank l sends each other node's rank l all that came together for
// it, g chunks in one message. So no message crosses rails, and there are g times fewer between
// nodes. Bytes: n (g - 1) / g in the node, n (m - 1) / m to others; g - 1 and m - 1 messages.
Plan rail_all_to_all(const Collective& c, int rank, int size, int ranks_per_node);

}  // namespace aisc
