// The links that virtual time is counted on: the alpha-beta-gamma model, flat or with nodes.
#pragma once

namespace aisc {

struct Link {
  double latency_seconds = 0;   // alpha: of each message
  double seconds_per_byte = 0;  // beta
};

// A message that is sent at `sent` (its sender's time, or when the sender's earlier messages of the
// same group have left) arrives, in the order of receipt, at
//   max(sent + alpha, receiver's link free) + bytes * beta,
// and the sender is done at sent + alpha + bytes * beta: each rank has one link in and one link out
// per communicator, which work at the same time. Receiving later than it arrived costs nothing.
//
// With nodes, ranks [k * ranks_per_node, (k+1) * ranks_per_node) of the world are node k. A message
// between nodes uses `card` instead of `link`; local rank l of each node goes through card
// l % cards_per_node. Cards are shared: a message holds the sender's and the receiver's card while
// its bytes pass, and messages pass in the order of the times at which they were sent (then of
// rank, then of issue), whatever the scheduler does.
struct Network {
  Link link{};
  double reduce_seconds_per_byte = 0;  // gamma: of each byte that a plan's Reduce adds
  int ranks_per_node = 0;              // 0: flat
  Link card{};
  int cards_per_node = 1;

  int node_of(int rank) const { return ranks_per_node == 0 ? 0 : rank / ranks_per_node; }
  bool crosses_nodes(int a, int b) const { return node_of(a) != node_of(b); }
  // Cards are numbered through all nodes.
  int card_of(int rank) const {
    return node_of(rank) * cards_per_node + rank % ranks_per_node % cards_per_node;
  }
};

}  // namespace aisc
