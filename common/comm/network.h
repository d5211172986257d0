// The links that virtual time is counted on: the alpha-beta-gamma model, flat or with nodes.
#pragma once

#include <cstdint>
#include <vector>

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
// l % cards_per_node, out of one node and into the other.
//
// With routes the network has any shape: every message passes the wires of its route, and `link`,
// nodes and cards are not used. A wire is one direction of a cable. routes[a * ranks + b] is the
// way from rank a to rank b.
//
// Cards and wires are shared: a message begins to pass when all of its way is free, its bytes
// arrive at the pace of the slowest part, and each part is taken for the time that the bytes need
// there. Messages pass in the order of the times at which they were sent, of those sent at one time
// each rank's first before any rank's second (wire_queue.h), whatever the scheduler does.
struct Network {
  struct Route {
    double latency_seconds = 0;
    std::vector<int> wires{};  // none: only the latency
  };

  Link link{};
  double reduce_seconds_per_byte = 0;  // gamma: of each byte that a plan's Reduce adds
  int ranks_per_node = 0;              // 0: flat
  Link card{};
  int cards_per_node = 1;
  std::vector<double> wire_seconds_per_byte{};
  std::vector<Route> routes{};

  int node_of(int rank) const { return ranks_per_node == 0 ? 0 : rank / ranks_per_node; }
  bool crosses_nodes(int a, int b) const { return node_of(a) != node_of(b); }
  // Cards are numbered through all nodes.
  int card_of(int rank) const {
    return node_of(rank) * cards_per_node + rank % ranks_per_node % cards_per_node;
  }
  // True: a message from a to b shares its way with others (SharedWires). Else it has the link.
  bool is_shared(int a, int b) const { return !routes.empty() || crosses_nodes(a, b); }
  // Throws Error where the numbers make no network of so many ranks.
  void check(int ranks) const;
};

// When cards and wires are free.
class SharedWires {
 public:
  SharedWires(const Network& network, int ranks);  // `network` is kept
  // A message that is_shared() passes: when its last byte arrives. To be called in the order of
  // sending.
  double pass(int from, int to, std::int64_t bytes, double sent_seconds);

 private:
  const Network& network_;
  int ranks_;
  std::vector<double> free_;  // of wires; of cards 2 c out, 2 c + 1 in
};

}  // namespace aisc
