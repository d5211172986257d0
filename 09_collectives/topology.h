// A machine as a graph: its GPUs, switches, processors and network cards, and the cables between
// them. From it come the ways of messages (network.h) and the rings worth having (search.h).
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/network.h"

namespace aisc {

struct Vertex {
  enum class Kind { Gpu, PcieSwitch, Cpu, NvSwitch, Card, RailSwitch, Spine };
  Kind kind;
  int node;    // -1: of the network between the nodes
  int number;  // among those of its kind in its node
  bool operator==(const Vertex&) const = default;
};

struct Speed {
  double bytes_per_second = 0;  // in each direction, both at the same time
  double latency_seconds = 0;
};

// Between vertices a and b. The wires of cable i are 2 i, from a to b, and 2 i + 1, back.
struct Cable {
  int a, b;
  Speed speed;
};

class Topology {
 public:
  // Returns the number of the vertex. GPUs become ranks in the order of their coming.
  int add(Vertex::Kind kind, int node);
  // Throws Error where there is no such vertex, a cable leads back to where it comes from, or
  // carries nothing.
  void connect(int a, int b, const Speed& speed);

  const std::vector<Vertex>& vertices() const { return vertices_; }
  const std::vector<Cable>& cables() const { return cables_; }
  int ranks() const { return static_cast<int>(gpus_.size()); }
  int nodes() const;
  // The vertex of the GPU that a rank is on.
  int gpu_of(int rank) const { return gpus_[static_cast<std::size_t>(rank)]; }
  const Vertex& gpu(int rank) const { return vertices_[static_cast<std::size_t>(gpu_of(rank))]; }
  // The vertices that a wire comes from and leads to.
  std::pair<int, int> ends_of(int wire) const;
  double bytes_per_second(int wire) const;

  // The same machine with other ranks: rank r on the GPU that rank order[r] has here. A scheduler
  // that numbers GPUs without a look at the cables gives such orders. Throws Error where `order`
  // does not hold every rank once.
  Topology with_ranks(std::span<const int> order) const;

  // One wire for each direction of a cable, and the way from every rank to every other: of all ways
  // those that carry most, of these one with the fewest cables, of these the one over the cables
  // that came first. GPUs and cards pass nothing on, so that a way within a node stays there. A way
  // to another node leaves by the card that is nearest in this sense and enters by the one nearest
  // to the receiver; where several are as near (two GPUs and two cards at one switch), by those
  // that make the whole way best, and else by those in the GPUs' own places. Throws Error naming
  // the GPUs that no way connects.
  Network network() const;
  // Whether way a, as wires, carries more than b, or as much over fewer cables.
  bool is_better(std::span<const int> a, std::span<const int> b) const;

  std::string name_of(int vertex) const;  // "GPU 3", "node 1 card 0", "rail switch 2"
  std::string to_string(const Network::Route& way) const;  // "GPU 0 > PCIe switch 0 > GPU 1"

 private:
  friend class WayFinder;
  std::vector<Vertex> vertices_;
  std::vector<Cable> cables_;
  std::vector<std::vector<int>> wires_from_;  // of each vertex
  std::vector<int> gpus_;
};

// Of each kind of cable. Whoever wants round numbers (tests) gives others.
struct Speeds {
  Speed nvlink;  // one of them
  Speed pcie;    // 16 lanes
  Speed cpus;    // from processor to processor
};
// topology_machines.cpp says where the numbers come from.
Speeds pcie_tree_speeds();
Speeds dgx1_speeds();
Speeds nvswitch_speeds();

// Eight GPUs without NVLink. Two processors, each with two PCIe switches, each with two GPUs; one
// card, at the switch of GPUs 0 and 1.
Topology pcie_tree(const Speeds& speeds = pcie_tree_speeds());

// NVIDIA's DGX-1 with V100: a pcie_tree with a card at every switch, and NVLinks between the GPUs,
// six of each, in a hybrid cube-mesh; some pairs have two, which are one cable here, twice as fast.
Topology dgx1(const Speeds& speeds = dgx1_speeds());

// NVIDIA's DGX A100: a pcie_tree with `cards` cards (8: two at a switch; 1: at the first), and all
// twelve NVLinks of each GPU into NVSwitches, which are one switch here, as NCCL counts them.
// Throws Error where the switches cannot have equal numbers of cards, unless there is only one.
Topology nvswitch_node(int cards = 8, const Speeds& speeds = nvswitch_speeds());

// The network between nodes, for card c of every node on the same switch, rail c. Several rails
// meet in a spine.
struct Fabric {
  Speed card;                   // from a card to its rail switch
  double oversubscription = 1;  // what enters a rail switch from its cards over what leaves it up
};
Fabric edr_fabric();  // 100 Gbit/s InfiniBand: DGX-1
Fabric hdr_fabric();  // 200 Gbit/s: DGX A100

// `nodes` times the same node; GPUs of node k are the ranks after those of node k - 1. Throws Error
// for nodes < 1, a node without cards, or an oversubscription that is not positive.
Topology cluster(const Topology& node, int nodes, const Fabric& fabric);

}  // namespace aisc
