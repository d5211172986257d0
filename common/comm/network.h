// The network that virtual time is counted on, and the clock rule of messages, once for ranks
// (thread/mailbox.h) and for plans without ranks (simulate.h). It is the alpha-beta-gamma model
// (Hockney, "The communication challenge for MPP", 1994; Thakur, Rabenseifner, Gropp, "Optimization
// of Collective Communication Operations in MPICH", 2005, section 3: a rank sends one message and
// receives one at a time), flat, with nodes, or of any shape.
#pragma once

#include <cstdint>
#include <vector>

namespace aisc {

struct Link {
  double latency_seconds = 0;   // alpha: of each message
  double seconds_per_byte = 0;  // beta
};

// With nodes, ranks [k * ranks_per_node, (k+1) * ranks_per_node) of the world are node k. A message
// between nodes uses `card` instead of `link`; local rank l of each node goes through card
// l % cards_per_node, out of one node and into the other.
//
// With routes the network has any shape: every message passes the wires of its route, and `link`,
// nodes and cards are not used. A wire is one direction of a cable. routes[a * ranks + b] is the
// way from rank a to rank b.
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
  // True: a message from a to b shares its way with others (SharedWires). Else it has the links of
  // its two ranks (RankLinks).
  bool is_shared(int a, int b) const { return !routes.empty() || crosses_nodes(a, b); }
  // When a Reduce of so many bytes is over that begins at `now`. Copies take no time.
  double reduced_seconds(double now, std::int64_t bytes) const;
  // Throws Error where the numbers make no network of so many ranks.
  void check(int ranks) const;
};

// A message under way: what its two sides count from. Its sender is done with it at done_seconds(),
// whenever its receiver takes it; a receiver that comes later than the message pays nothing for it.
struct Passage {
  double sent_seconds = 0;      // it begins to leave
  double arrives_seconds = 0;   // its first byte is there; over cards or wires all of it is
  double transfer_seconds = 0;  // its bytes need so long on the link in; over cards or wires 0
  bool is_shared = false;       // over cards or wires

  double done_seconds() const { return arrives_seconds + transfer_seconds; }
};

// The messages of one step (of a plan, or the transfers of one exchange) all start at the same time
// `now`, in the order in which the step has them. On links each rank has one link out and one link
// in per communicator, whoever is at the other end: one pair for its exchanges, another for its
// collectives. The two links of a pair work at the same time:
//
//   send     sent = max(now, link out free)        the messages before it have left
//            link out free = sent + n * beta       the latencies of a step's messages overlap
//            arrives = sent + alpha                its first byte
//   receive  over = max(arrives, link in free) + n * beta = link in free
//                                                  in the order of the step's receives
//
// The step is over at the latest of `now`, its sends' done_seconds() and its receives' `over`. By
// hand, alpha = 1, n * beta = 4: two messages of one step that begins at 0, to two receivers, are
// sent at 0 and 4, arrive at 1 and 5, and are over at 5 and 9. Two that arrive at 1 at the same
// receiver are over there at 5 and 9.
//
// Not in the model: a path inside the network that is too narrow (that is what routes are for), a
// receiver without room for what comes early, and the processor's time for a message.
struct RankLinks {
  double out_free_seconds = 0, in_free_seconds = 0;

  // The next message of a step leaves on the link out, which is busy then.
  Passage send(double now, std::int64_t bytes, const Link& link);
  // When the next message that the rank receives is over. It takes the link in, unless it came over
  // cards or wires.
  double receive(const Passage& passage);
};

// When cards and wires are free. They are shared by all ranks and communicators: a message begins
// to pass when its latency is over and all of its way is free, its bytes arrive at the pace of the
// slowest part, and each part is taken for the time that the bytes need there:
//
//   begin = max(sent + alpha, each part free), part free = begin + n * its beta,
//   arrives = begin + n * the largest beta
//
// A card is two parts, out and in. Messages pass in the order of the times at which they were sent,
// of those sent at one time each rank's first before any rank's second (backend/wire_queue.h),
// whatever the scheduler does. A rank's link out does not hold them back: all of a step are sent at
// its beginning.
class SharedWires {
 public:
  SharedWires(const Network& network, int ranks);  // `network` is kept
  // A message that is_shared() passes. To be called in the order of sending.
  Passage pass(int from, int to, std::int64_t bytes, double sent_seconds);

 private:
  const Network& network_;
  int ranks_;
  std::vector<double> free_;  // of wires; of cards 2 c out, 2 c + 1 in
};

}  // namespace aisc
