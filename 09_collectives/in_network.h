// A sum in the network: a switch that adds what passes through it (NVIDIA's SHARP; NCCL's CollNet).
#pragma once

#include "common/comm/network.h"
#include "common/comm/plan.h"

namespace aisc {

// Emulated: the last rank of the communicator is the switch. Ranks 0 .. size - 2 hold the data; the
// switch's own buffer is not a part of the sum, and ends with the sum like all others. Each rank
// sends its buffer once and receives the sum once, in `segments` pieces; the switch adds in the
// order of the ranks and sends each segment's sum out while the next arrives. Bytes: n each, where
// a ring sends 2 n (p - 1) / p. On in_network() below, and with g = 0: (k + 1) (a + n / k b).
// Throws Error for segments < 1, and for fewer than 2 ranks.
Plan in_network_all_reduce(const Collective& c, int rank, int size, int segments);

// A switch with a port for each of `ranks` ranks; it is rank `ranks` itself. Cables of all ports
// work at the same time and in both directions. A switch adds as fast as its links bring: g = 0. A
// message between two ranks passes both cables and takes one latency, too; the network's `link`
// says what a message takes, as formulas read it. Throws Error for ranks < 1.
Network in_network(int ranks, const Link& link);

}  // namespace aisc
