// Machines as graphs: which ways messages take, and what they cost on them.
#include "09_collectives/topology.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "tests/support/exact_network.h"
#include "tests/support/message_of.h"

namespace aisc {
namespace {

using Kind = Vertex::Kind;

const Network::Route& way(const Topology& topology, const Network& network, int from, int to) {
  return network.routes[static_cast<std::size_t>(from * topology.ranks() + to)];
}
std::string way_of(const Topology& topology, int from, int to) {
  return topology.to_string(way(topology, topology.network(), from, to));
}

TEST(Topology, NumbersVerticesOfAKindInTheirNode) {
  Topology t;
  EXPECT_EQ(t.add(Kind::Gpu, 0), 0) << "the first vertex: its number";
  EXPECT_EQ(t.add(Kind::Card, 0), 1) << "the second vertex: its number";
  EXPECT_EQ(t.add(Kind::Gpu, 0), 2) << "the third vertex: its number";
  EXPECT_EQ(t.add(Kind::Gpu, 1), 3) << "the fourth vertex: its number";
  EXPECT_EQ(t.add(Kind::Spine, -1), 4) << "the fifth vertex: its number";
  EXPECT_EQ(t.vertices()[2], (Vertex{Kind::Gpu, 0, 1})) << "vertex 2, the second GPU of node 0";
  EXPECT_EQ(t.vertices()[3], (Vertex{Kind::Gpu, 1, 0})) << "vertex 3, the first GPU of node 1";
  EXPECT_EQ(t.nodes(), 2) << "GPUs in nodes 0 and 1: how many nodes";
  EXPECT_EQ(t.ranks(), 3) << "three GPUs: how many ranks";
  EXPECT_EQ(t.gpu_of(2), 3) << "the vertex of rank 2";
  EXPECT_EQ(t.name_of(3), "node 1 GPU 0") << "the name of vertex 3";
  EXPECT_EQ(t.name_of(4), "spine") << "the name of vertex 4";
}

TEST(Topology, HasAWireForEachDirectionOfACable) {
  Topology t;
  const int a = t.add(Kind::Gpu, 0), b = t.add(Kind::Gpu, 0);
  t.connect(a, b, {8, 0.5});
  EXPECT_EQ(t.ends_of(0), std::pair(a, b)) << "the ends of wire 0";
  EXPECT_EQ(t.ends_of(1), std::pair(b, a)) << "the ends of wire 1, the cable's other direction";
  const Network network = t.network();
  EXPECT_EQ(network.wire_seconds_per_byte, (std::vector<double>{1.0 / 8, 1.0 / 8}))
      << "a cable of 8 bytes/s: seconds for a byte, in each direction";
  EXPECT_EQ(way(t, network, 0, 1).wires, std::vector<int>{0}) << "the wires from GPU 0 to GPU 1";
  EXPECT_EQ(way(t, network, 1, 0).wires, std::vector<int>{1}) << "the wires from GPU 1 to GPU 0";
  EXPECT_EQ(way(t, network, 1, 0).latency_seconds, 0.5)
      << "latency from GPU 1 to GPU 0, of one cable";
  EXPECT_TRUE(way(t, network, 1, 1).wires.empty()) << "from GPU 1 to itself no wire is passed";
  EXPECT_EQ(way(t, network, 1, 1).latency_seconds, 0) << "latency from GPU 1 to itself";
}

// Two ways from GPU 0 to GPU 1: through one switch at `one`, or two switches at `two` bytes/s.
Topology two_ways(double one, double two) {
  Topology t;
  const int a = t.add(Kind::Gpu, 0), b = t.add(Kind::Gpu, 0);
  const int s[] = {t.add(Kind::PcieSwitch, 0), t.add(Kind::PcieSwitch, 0),
                   t.add(Kind::PcieSwitch, 0)};
  t.connect(a, s[1], {two, 1});
  t.connect(s[1], s[2], {two, 1});
  t.connect(s[2], b, {two, 1});
  t.connect(a, s[0], {one, 1});
  t.connect(s[0], b, {2 * one, 1});
  return t;
}

TEST(Ways, TakeWhatCarriesMostThenTheFewestCables) {
  const std::string wide = "GPU 0 > PCIe switch 1 > PCIe switch 2 > GPU 1";
  const std::string narrow = "GPU 0 > PCIe switch 0 > GPU 1";
  EXPECT_EQ(way_of(two_ways(4, 5), 0, 1), wide) << "4 bytes/s over one switch, 5 over two";
  EXPECT_EQ(way_of(two_ways(4, 4), 0, 1), narrow) << "4 bytes/s over one switch, 4 over two";
  EXPECT_EQ(way_of(two_ways(4, 3), 0, 1), narrow) << "4 bytes/s over one switch, 3 over two";
  const Topology t = two_ways(4, 5);
  EXPECT_EQ(way(t, t.network(), 0, 1).latency_seconds, 3) << "latency of the way of three cables";
}

// The wide way to the switch is of no use where the rest is narrow: the short one counts then.
TEST(Ways, AreWideAsAWholeNotPieceByPiece) {
  Topology t;
  const int a = t.add(Kind::Gpu, 0), b = t.add(Kind::Gpu, 0);
  const int near = t.add(Kind::PcieSwitch, 0), far = t.add(Kind::PcieSwitch, 0);
  t.connect(a, far, {8, 0});
  t.connect(far, near, {8, 0});
  t.connect(a, near, {4, 0});
  t.connect(near, b, {4, 0});
  EXPECT_EQ(way_of(t, 0, 1), "GPU 0 > PCIe switch 0 > GPU 1")
      << "the last cable is narrow on both ways, so the shorter one is taken";
}

TEST(Ways, OfEqualOnesTakeTheCableThatCameFirst) {
  Topology t;
  const int a = t.add(Kind::Gpu, 0), b = t.add(Kind::Gpu, 0);
  const int s[] = {t.add(Kind::NvSwitch, 0), t.add(Kind::NvSwitch, 0)};
  t.connect(a, s[1], {1, 0});
  t.connect(a, s[0], {1, 0});
  for (const int i : {0, 1}) t.connect(s[i], b, {1, 0});
  EXPECT_EQ(way(t, t.network(), 0, 1).wires.front(), 0)
      << "two equal ways: the wire that the first cable has";
}

TEST(Ways, DoNotLeadThroughGpusAndCards) {
  for (const Kind between : {Kind::Gpu, Kind::Card}) {
    Topology t;
    const int a = t.add(Kind::Gpu, 0), middle = t.add(between, 0), b = t.add(Kind::Gpu, 0);
    t.connect(a, middle, {1, 0});
    t.connect(middle, b, {1, 0});
    const std::string last = between == Kind::Gpu ? "GPU 2" : "GPU 1";
    EXPECT_EQ(message_of([&] { t.network(); }), "topology: no way from GPU 0 to " + last)
        << "the error where only a GPU or a card stands between two GPUs";
  }
}

TEST(Topology, RefusesCablesThatCannotBe) {
  Topology t;
  t.add(Kind::Gpu, 0);
  t.add(Kind::Cpu, 0);
  const auto message = [&](int a, int b, const Speed& speed) {
    return message_of([&] { t.connect(a, b, speed); });
  };
  EXPECT_EQ(message(0, 2, {1, 0}), "topology: a cable to vertex 2, there are 2");
  EXPECT_EQ(message(-1, 0, {1, 0}), "topology: a cable to vertex -1, there are 2");
  EXPECT_EQ(message(1, 1, {1, 0}), "topology: a cable from CPU 0 to itself");
  EXPECT_EQ(message(0, 1, {0, 0}), "topology: a cable of 0 bytes/s and 0 s from GPU 0 to CPU 0");
  EXPECT_EQ(message(0, 1, {1, -2}), "topology: a cable of 1 bytes/s and -2 s from GPU 0 to CPU 0");
}

TEST(RankOrders, InAnotherOrderTakeTheWaysOfTheirGpus) {
  const Topology tree = pcie_tree();
  const std::vector<int> order{0, 4, 1, 5, 2, 6, 3, 7};
  const Topology other = tree.with_ranks(order);
  const Network expected = tree.network(), network = other.network();
  for (int a = 0; a < 8; ++a)
    for (int b = 0; b < 8; ++b)
      EXPECT_EQ(way(other, network, a, b).wires,
                way(tree, expected, order[static_cast<std::size_t>(a)],
                    order[static_cast<std::size_t>(b)])
                    .wires)
          << "the wires from rank " << a << " to rank " << b;
  EXPECT_EQ(other.gpu(1).number, 4) << "the GPU of rank 1 in the order 0 4 1 5 2 6 3 7";
  const Topology once_more = other.with_ranks(std::vector<int>{1, 0, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(once_more.gpu(0).number, 4)
      << "the GPU of rank 0 where ranks 0 and 1 of that order are swapped";
}

TEST(RankOrders, AreEachThereOnce) {
  const auto message = [](const std::vector<int>& order) {
    return message_of([&] { pcie_tree().with_ranks(order); });
  };
  EXPECT_EQ(message({0, 1}),
            "topology: an order of 2 ranks (2 different), each of 8 once expected");
  EXPECT_EQ(message({0, 1, 2, 3, 4, 5, 6, 6}),
            "topology: an order of 8 ranks (7 different), each of 8 once expected");
  EXPECT_EQ(message({1, 2, 3, 4, 5, 6, 7, 8}),
            "topology: an order of 8 ranks (8 different), each of 8 once expected");
}

TEST(PcieTree, WaysPassWhatStandsBetween) {
  const Topology t = pcie_tree();
  EXPECT_EQ(way_of(t, 0, 1), "GPU 0 > PCIe switch 0 > GPU 1");
  EXPECT_EQ(way_of(t, 1, 2), "GPU 1 > PCIe switch 0 > CPU 0 > PCIe switch 1 > GPU 2");
  EXPECT_EQ(way_of(t, 7, 0), "GPU 7 > PCIe switch 3 > CPU 1 > CPU 0 > PCIe switch 0 > GPU 0");
}

// Powers of two, so that == is right. QPI carries half of what PCIe does.
const Speeds kPowersOfTwo{
    .nvlink = {0x1p22, 0x1p-12}, .pcie = {0x1p21, 0x1p-12}, .cpus = {0x1p20, 0x1p-11}};

// Through GPU 0's PCIe cable both messages pass one after the other, then at their own pace.
TEST(PcieTree, CommunicatorsTakeTheTimeOfItsCables) {
  const auto times =
      exact::end_times({.ranks = 8, .network = pcie_tree(kPowersOfTwo).network()}, [](Rank rank) {
        const Tensor x = exact::f32(rank, 256);
        const Transfer both[] = {{.in = x, .to = 1}, {.in = x, .to = 4}};
        if (rank.world.rank() == 0) rank.world.exchange(both).wait();
        for (const int to : {1, 4})
          if (rank.world.rank() == to) rank.world.recv(x, 0).wait();
      });
  const double pcie = 1024 * 0x1p-21, cpus = 1024 * 0x1p-20;
  EXPECT_EQ(times[1], 2 * 0x1p-12 + pcie) << "seconds until rank 1 has 1,024 bytes of rank 0";
  EXPECT_EQ(times[4], std::max(4 * 0x1p-12 + 0x1p-11, times[1]) + cpus)
      << "seconds until rank 4, at the other processor, has them";
}

TEST(Dgx1, HasSixNvlinksAtEachGpu) {
  const Topology t = dgx1();
  std::map<int, double> links;
  std::map<std::pair<int, int>, double> pairs;
  for (const Cable& cable : t.cables()) {
    if (cable.a >= 8 || cable.b >= 8) continue;
    pairs[{cable.a, cable.b}] = cable.speed.bytes_per_second / 25e9;
    for (const int end : {cable.a, cable.b}) links[end] += cable.speed.bytes_per_second / 25e9;
  }
  EXPECT_EQ(pairs.size(), 16u) << "pairs of GPUs with NVLinks between them";
  for (int gpu = 0; gpu < 8; ++gpu) EXPECT_EQ(links[gpu], 6) << "NVLinks of GPU " << gpu;
  // The cube: each GPU to the one opposite, all within each half.
  const std::map<std::pair<int, int>, double> expected{
      {{0, 1}, 1}, {{0, 2}, 1}, {{0, 3}, 2}, {{1, 2}, 2}, {{1, 3}, 1}, {{2, 3}, 2},
      {{0, 4}, 2}, {{1, 5}, 2}, {{2, 6}, 1}, {{3, 7}, 1}, {{4, 5}, 1}, {{4, 6}, 1},
      {{4, 7}, 2}, {{5, 6}, 2}, {{5, 7}, 1}, {{6, 7}, 2}};
  EXPECT_EQ(pairs, expected) << "NVLinks of each pair of GPUs";
}

TEST(Dgx1, TakesPcieWhereThereIsNoNvlink) {
  const Topology t = dgx1();
  EXPECT_EQ(way_of(t, 3, 0), "GPU 3 > GPU 0");
  EXPECT_EQ(way_of(t, 3, 4), "GPU 3 > PCIe switch 1 > CPU 0 > CPU 1 > PCIe switch 2 > GPU 4");
}

// Cards by the PCIe switch that they are at.
std::vector<int> switches_of_cards(const Topology& t) {
  std::vector<int> at;
  for (const Cable& cable : t.cables())
    if (t.vertices()[static_cast<std::size_t>(cable.a)].kind == Kind::Card)
      at.push_back(t.vertices()[static_cast<std::size_t>(cable.b)].number);
  return at;
}

TEST(Machines, HaveTheirCardsAtPcieSwitches) {
  EXPECT_EQ(switches_of_cards(pcie_tree()), std::vector<int>{0})
      << "pcie_tree(): the PCIe switch of each card";
  EXPECT_EQ(switches_of_cards(dgx1()), (std::vector<int>{0, 1, 2, 3}))
      << "dgx1(): the PCIe switch of each card";
  EXPECT_EQ(switches_of_cards(nvswitch_node(1)), std::vector<int>{0})
      << "nvswitch_node(1): the PCIe switch of each card";
  EXPECT_EQ(switches_of_cards(nvswitch_node(4)), (std::vector<int>{0, 1, 2, 3}))
      << "nvswitch_node(4): the PCIe switch of each card";
  EXPECT_EQ(switches_of_cards(nvswitch_node()), (std::vector<int>{0, 0, 1, 1, 2, 2, 3, 3}))
      << "nvswitch_node(): the PCIe switch of each card";
  for (const int cards : {0, 3, 6, -4})
    EXPECT_EQ(message_of([&] { nvswitch_node(cards); }),
              "topology: " + std::to_string(cards) +
                  " cards, 1 or equally many at each of 4 switches expected");
}

TEST(NvswitchNode, GivesEveryPairAllNvlinks) {
  const Topology t = nvswitch_node();
  const Network network = t.network();
  for (int a = 0; a < 8; ++a)
    for (int b = 0; b < 8; ++b) {
      if (a == b) continue;
      EXPECT_EQ(t.to_string(way(t, network, a, b)), t.name_of(a) + " > NVSwitch > " + t.name_of(b));
      for (const int wire : way(t, network, a, b).wires)
        EXPECT_EQ(t.bytes_per_second(wire), 12 * 25e9)
            << "bytes/s of a wire from GPU " << a << " to GPU " << b;
    }
}

// NVIDIA's example for PXN: from GPU 0 of one node to GPU 3 of another through leaf 0, a spine
// switch and leaf 3; on the same rail through one leaf.
TEST(Cluster, MessagesToAnotherRailCrossTheSpine) {
  const Topology t = cluster(nvswitch_node(), 2, hdr_fabric());
  EXPECT_EQ(way_of(t, 0, 8 + 3),
            "node 0 GPU 0 > node 0 PCIe switch 0 > node 0 card 0 > rail switch 0 > spine > "
            "rail switch 3 > node 1 card 3 > node 1 PCIe switch 1 > node 1 GPU 3");
  EXPECT_EQ(way_of(t, 8 + 5, 5),
            "node 1 GPU 5 > node 1 PCIe switch 2 > node 1 card 5 > rail switch 5 > "
            "node 0 card 5 > node 0 PCIe switch 2 > node 0 GPU 5");
}

// GPUs 0 and 1 are as near to card 0 as to card 1.
TEST(Cluster, GpusAtOneSwitchReachEachOthersRail) {
  EXPECT_EQ(way_of(cluster(nvswitch_node(), 2, hdr_fabric()), 1, 8),
            "node 0 GPU 1 > node 0 PCIe switch 0 > node 0 card 1 > rail switch 1 > "
            "node 1 card 1 > node 1 PCIe switch 0 > node 1 GPU 0");
}

TEST(Cluster, EveryRankHasAWayToEveryOther) {
  for (const Topology& node : {pcie_tree(), dgx1(), nvswitch_node(1), nvswitch_node()})
    for (const int nodes : {1, 2, 3}) {
      const Topology t = cluster(node, nodes, edr_fabric());
      EXPECT_EQ(t.ranks(), 8 * nodes) << nodes << " nodes: how many ranks";
      EXPECT_EQ(t.nodes(), nodes) << "how many nodes";
      const Network network = t.network();
      network.check(t.ranks());
      for (int a = 0; a < t.ranks(); ++a)
        for (int b = 0; b < t.ranks(); ++b) {
          if (a == b) continue;
          const std::vector<int>& wires = way(t, network, a, b).wires;
          ASSERT_FALSE(wires.empty())
              << nodes << " nodes: no wire from rank " << a << " to rank " << b;
          int here = t.gpu_of(a);
          std::set<int> passed{here};
          for (const int wire : wires) {  // cable to cable, nowhere twice
            ASSERT_EQ(t.ends_of(wire).first, here)
                << "from rank " << a << " to rank " << b << ": where a wire begins";
            here = t.ends_of(wire).second;
            EXPECT_TRUE(passed.insert(here).second) << "from rank " << a << " to rank " << b << ": "
                                                    << t.name_of(here) << " is passed twice";
          }
          EXPECT_EQ(here, t.gpu_of(b))
              << "from rank " << a << " to rank " << b << ": where the last wire ends";
          std::set<int> of_nodes;
          for (const int v : passed)
            of_nodes.insert(t.vertices()[static_cast<std::size_t>(v)].node);
          EXPECT_EQ(of_nodes.size(),
                    t.gpu(a).node == t.gpu(b).node ? 1u : 3u)  // both, and the network
              << "from rank " << a << " to rank " << b
              << ": nodes passed, the network counted as one";
        }
    }
}

// Of a rail switch's cable to the spine; 0: there is none.
double spine_rate(const Topology& t) {
  for (const Cable& cable : t.cables())
    for (const int end : {cable.a, cable.b})
      if (t.vertices()[static_cast<std::size_t>(end)].kind == Kind::Spine)
        return cable.speed.bytes_per_second;
  return 0;
}

TEST(Cluster, OversubscriptionNarrowsTheSpine) {
  Fabric fabric{.card = {8, 0}};
  EXPECT_EQ(spine_rate(cluster(nvswitch_node(), 4, fabric)), 4 * 8)
      << "bytes/s from a rail switch to the spine, 4 nodes with cards of 8 bytes/s";
  fabric.oversubscription = 2;
  EXPECT_EQ(spine_rate(cluster(nvswitch_node(), 4, fabric)), 4 * 8 / 2)
      << "bytes/s from a rail switch to the spine, oversubscribed twice";
  EXPECT_EQ(spine_rate(cluster(nvswitch_node(1), 4, fabric)), 0)
      << "bytes/s to the spine: one rail needs none";
}

TEST(Cluster, KeepsTheOrderOfANodesRanks) {
  std::vector<int> order{7, 6, 5, 4, 3, 2, 1, 0};
  const Topology t = cluster(pcie_tree().with_ranks(order), 2, edr_fabric());
  for (int r = 0; r < 16; ++r) {
    EXPECT_EQ(t.gpu(r).node, r / 8) << "the node of rank " << r;
    EXPECT_EQ(t.gpu(r).number, 7 - r % 8) << "the GPU of rank " << r;
  }
}

TEST(Cluster, SaysWhatItCannotBuild) {
  const auto message = [](const Topology& node, int nodes, const Fabric& fabric) {
    return message_of([&] { cluster(node, nodes, fabric); });
  };
  EXPECT_EQ(message(dgx1(), 0, edr_fabric()), "cluster: 0 nodes, at least 1 expected");
  EXPECT_EQ(message(dgx1(), 2, {.card = {1, 0}, .oversubscription = 0}),
            "cluster: oversubscription 0, more than 0 expected");
  EXPECT_EQ(message(cluster(dgx1(), 2, edr_fabric()), 2, edr_fabric()),
            "cluster: of a cluster of 2 nodes");
  Topology no_card;
  no_card.add(Kind::Gpu, 0);
  EXPECT_EQ(message(no_card, 2, edr_fabric()), "cluster: a node without a network card");
}

}  // namespace
}  // namespace aisc
