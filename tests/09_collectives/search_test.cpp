// The rings that the search finds: do they fit, and could there be more? What they are worth is in
// whole/machines_test.cpp.
#include "09_collectives/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "tests/support/drawn.h"
#include "tests/support/message_of.h"

namespace aisc {
namespace {

using Kind = Vertex::Kind;
constexpr double kGigabyte = 1e9;

// Every order holds all ranks once, and all channels together leave every wire its rate. Of a chain
// each hop goes there and back, and none leads from its end to its beginning.
void expect_fit(const Topology& t, const Channels& channels, int directions) {
  const Network network = t.network();
  std::vector<double> load(network.wire_seconds_per_byte.size());
  ASSERT_FALSE(channels.orders.empty());
  for (const Order& order : channels.orders) {
    ASSERT_EQ(std::set<int>(order.begin(), order.end()).size(), order.size());
    ASSERT_EQ(static_cast<int>(order.size()), t.ranks()) << "ranks of a chain";
    const std::size_t hops = order.size() - (directions == 2 ? 1 : 0);
    for (std::size_t i = 0; i < hops; ++i) {
      const int a = order[i], b = order[(i + 1) % order.size()];
      ASSERT_TRUE(a >= 0 && a < t.ranks()) << "rank " << a << " of a ring is no rank";
      for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
        if (from == b && directions == 1) continue;
        for (const int wire : network.routes[static_cast<std::size_t>(from * t.ranks() + to)].wires)
          load[static_cast<std::size_t>(wire)] += channels.bytes_per_second;
      }
    }
  }
  for (std::size_t wire = 0; wire < load.size(); ++wire)
    EXPECT_LE(load[wire], t.bytes_per_second(static_cast<int>(wire)) * (1 + 1e-6))
        << "bytes/s over the wire from " << t.name_of(t.ends_of(static_cast<int>(wire)).first)
        << " to " << t.name_of(t.ends_of(static_cast<int>(wire)).second);
}

void expect_channels(const Channels& channels, std::size_t count, double gigabytes) {
  EXPECT_EQ(channels.orders.size(), count) << "how many rings or chains are found";
  EXPECT_EQ(channels.bytes_per_second, gigabytes * kGigabyte) << "bytes/s of each of them";
}
Channels expect_rings(const Topology& t, std::size_t count, double gigabytes) {
  const Channels rings = find_rings(t);
  expect_fit(t, rings, 1);
  expect_channels(rings, count, gigabytes);
  return rings;
}
void expect_chains(const Topology& t, std::size_t count, double gigabytes) {
  const Channels chains = find_chains(t);
  expect_fit(t, chains, 2);
  expect_channels(chains, count, gigabytes);
}

// The kind of what a wire comes from.
Kind begin_of(const Topology& t, int wire) {
  return t.vertices()[static_cast<std::size_t>(t.ends_of(wire).first)].kind;
}

TEST(FindRings, OfAPcieTreePassesEachCableOnceInEachDirection) {
  const Topology t = pcie_tree();
  const Channels rings = expect_rings(t, 1, 10);  // what one processor sends the other
  const std::vector<int> times = crossings(t, rings.orders);
  for (int wire = 0; wire < static_cast<int>(times.size()); ++wire) {
    const auto [a, b] = t.ends_of(wire);
    const bool is_card = t.vertices()[static_cast<std::size_t>(a)].kind == Kind::Card ||
                         t.vertices()[static_cast<std::size_t>(b)].kind == Kind::Card;
    EXPECT_EQ(times[static_cast<std::size_t>(wire)], is_card ? 0 : 1)
        << "how often the ring passes the wire from " << t.name_of(a) << " to " << t.name_of(b);
  }
}

// No more is possible: each GPU has six NVLinks out, and every ring leaves each GPU once. NVIDIA
// calls the machine three interwoven rings.
TEST(FindRings, OfADgx1AreThreeInBothDirections) {
  const Channels rings = expect_rings(dgx1(), 6, 25);
  EXPECT_EQ(rings.total_bytes_per_second(), 150 * kGigabyte) << "bytes/s of all rings together";
  std::multiset<Order> there(rings.orders.begin(), rings.orders.end()), back;
  for (Order order : rings.orders) {
    EXPECT_EQ(order.front(), 0) << "the rank that a ring begins with";
    std::reverse(order.begin() + 1, order.end());
    back.insert(order);
  }
  EXPECT_EQ(there, back) << "rings in one direction, beside the others turned round";
}

TEST(FindRings, OfNvswitchesTakeAllThatAGpuHas) { expect_rings(nvswitch_node(), 1, 300); }

// On GPUs in a bad order the same rings are found, under other numbers.
TEST(FindRings, DoNotDependOnTheOrderOfRanks) {
  expect_rings(dgx1().with_ranks(std::vector<int>{3, 6, 0, 5, 1, 7, 2, 4}), 6, 25);
}

// Every node is passed in one piece, the same way, and entered and left by the same rail.
void expect_nodes_alike(const Topology& t, const Channels& rings) {
  const int nodes = t.nodes(), gpus = t.ranks() / nodes;
  for (const Order& order : rings.orders)
    for (int i = 0; i < t.ranks(); ++i) {
      const Vertex &gpu = t.gpu(order[static_cast<std::size_t>(i)]),
                   &first = t.gpu(order[static_cast<std::size_t>(i % gpus)]);
      EXPECT_EQ(gpu.node, i / gpus) << "place " << i << " of a ring: its node";
      EXPECT_EQ(gpu.number, first.number)
          << "place " << i << " of a ring: its GPU, as in the first node";
    }
  const std::vector<int> times = crossings(t, rings.orders);
  for (int wire = 0; wire < static_cast<int>(times.size()); ++wire)
    if (begin_of(t, wire) == Kind::Spine) {
      EXPECT_EQ(times[static_cast<std::size_t>(wire)], 0)
          << "how often rings pass a wire from the spine";
    }
}

// NVIDIA measured 192 GB/s on such nodes (NVIDIA/nccl issue 812).
TEST(FindRings, OfNodesWithEightCardsAreEightOnePerCard) {
  for (const int nodes : {2, 3, 8}) {
    const Topology t = cluster(nvswitch_node(), nodes, hdr_fabric());
    const Channels rings = expect_rings(t, 8, 24);  // PCIe, a little less than a card
    expect_nodes_alike(t, rings);
    const std::vector<int> times = crossings(t, rings.orders);
    for (int wire = 0; wire < static_cast<int>(times.size()); ++wire)
      if (begin_of(t, wire) == Kind::Card) {
        EXPECT_EQ(times[static_cast<std::size_t>(wire)], 1)
            << "how often rings pass a wire from a card";
      }
  }
}

TEST(FindRings, OfOtherClustersTakeWhatTheirCardsCarry) {
  const Topology nvswitch = cluster(nvswitch_node(1), 2, hdr_fabric()),
                 dgx = cluster(dgx1(), 2, edr_fabric()),
                 tree = cluster(pcie_tree(), 2, edr_fabric());
  expect_nodes_alike(nvswitch, expect_rings(nvswitch, 1, 24));
  expect_nodes_alike(dgx, expect_rings(dgx, 4, 12));
  expect_nodes_alike(tree, expect_rings(tree, 1, 10));
}

// Four GPUs with at random 0 to 2 NVLinks between each two: there are six rings in all, so that
// every choice can be tried.
struct Small {
  std::vector<Order> rings;
  std::vector<int> links;  // [from * 4 + to]

  int most(std::size_t first, std::vector<int>& room) const {
    int best = 0;
    for (std::size_t k = first; k < rings.size(); ++k) {
      bool has_room = true;
      for (const int change : {-1, 1}) {
        for (std::size_t i = 0; i < 4; ++i) {
          int& wire = room[static_cast<std::size_t>(rings[k][i] * 4 + rings[k][(i + 1) % 4])];
          wire += change;
          has_room = has_room && wire >= 0;
        }
        if (change < 0 && has_room) best = std::max(best, 1 + most(k, room));
      }
    }
    return best;
  }
};

TEST(FindRings, MissNoneOnSmallMachines) {
  for (int machine = 0; machine < 40; ++machine) {
    SCOPED_TRACE(testing::Message() << "machine " << machine);
    Small small{.links = std::vector<int>(16)};
    Topology t;
    for (int gpu = 0; gpu < 4; ++gpu) t.add(Kind::Gpu, 0);
    const int pcie = t.add(Kind::PcieSwitch, 0);
    for (int gpu = 0; gpu < 4; ++gpu) t.connect(gpu, pcie, {0.01, 0});
    for (int a = 0; a < 4; ++a)
      for (int b = a + 1; b < 4; ++b) {
        const int links = static_cast<int>(
            drawn("links of machine " + std::to_string(machine * 16 + a * 4 + b), 0, 2));
        for (const int i : {a * 4 + b, b * 4 + a}) small.links[static_cast<std::size_t>(i)] = links;
        if (links > 0) t.connect(a, b, {static_cast<double>(links), 0});
      }
    for (Order order{0, 1, 2, 3}; order[0] == 0;) {
      small.rings.push_back(order);
      if (!std::next_permutation(order.begin(), order.end())) break;
    }
    double most = 0;  // in links; rings of half a link and less count too
    for (int parts = 1; parts <= 4; ++parts) {
      std::vector<int> room = small.links;
      for (int& wire : room) wire *= parts;
      most = std::max(most, small.most(0, room) / static_cast<double>(parts));
    }
    const Channels rings = find_rings(t);
    expect_fit(t, rings, 1);
    if (most > 0) {
      EXPECT_DOUBLE_EQ(rings.total_bytes_per_second(), most)
          << "bytes/s of all rings, beside the most that there is";
    } else {
      EXPECT_GE(rings.total_bytes_per_second(), 0.01)
          << "bytes/s of all rings";  // some hops over the PCIe switch
      EXPECT_LT(rings.bytes_per_second, 0.02) << "bytes/s of a ring over the PCIe switch";
    }
  }
}

// A third ring would have room on the PCIe switch.
TEST(FindRings, KeepToNvlinkWhereItConnectsAll) {
  Topology t;
  for (int gpu = 0; gpu < 4; ++gpu) t.add(Kind::Gpu, 0);
  const int pcie = t.add(Kind::PcieSwitch, 0);
  for (int gpu = 0; gpu < 4; ++gpu) t.connect(gpu, pcie, {kGigabyte, 0});
  for (int gpu = 0; gpu < 4; ++gpu) t.connect(gpu, (gpu + 1) % 4, {kGigabyte, 0});
  expect_rings(t, 2, 1);
}

TEST(FindRings, AreTheSameEachTime) {
  for (const Topology& t : {dgx1(), cluster(nvswitch_node(), 2, hdr_fabric())})
    EXPECT_EQ(find_rings(t).orders, find_rings(t).orders) << "rings found once, and again";
}

TEST(FindRings, KeepToTheirLimits) {
  EXPECT_EQ(find_rings(dgx1(), {.most_channels = 2}).orders.size(), 2u)
      << "at most two channels asked for: how many are found";
  EXPECT_EQ(message_of([] { find_rings(dgx1(), {.steps = 5}); }),
            "search: no channel through 8 GPUs found in 5 steps");
}

TEST(FindRings, SayWhatHasNone) {
  Topology t;
  t.add(Kind::Gpu, 0);
  EXPECT_EQ(message_of([&] { find_rings(t); }), "search: 1 ranks, at least 2 expected");
  Topology uneven;
  for (const int node : {0, 0, 1}) uneven.add(Kind::Gpu, node);
  EXPECT_EQ(message_of([&] { find_rings(uneven); }),
            "search: 2 GPUs in node 0, 1 in node 1, equally many expected");
}

// Both directions of 24 NVLinks, 7 for each chain.
TEST(FindChains, OfADgx1AreThree) { expect_chains(dgx1(), 3, 25); }

// A GPU in the middle of a chain sends up and down: half of its link for each.
TEST(FindChains, HaveHalfALinkWhereOneIsAllThatAGpuHas) {
  expect_chains(nvswitch_node(), 1, 150);
  expect_chains(pcie_tree(), 1, 6);
}

// What chains and the trees over their heads send over each wire fits: hops of a chain both ways;
// from each node's head to the next one's twice what a chain carries.
void expect_trees(const Topology& t, std::size_t count, double gigabytes) {
  const Channels chains = find_chains(t);
  expect_channels(chains, count, gigabytes);
  const Network network = t.network();
  std::vector<double> sent(network.wire_seconds_per_byte.size());
  const int nodes = t.nodes(), gpus = t.ranks() / nodes;
  const auto send = [&](int from, int to, int times) {
    for (const int wire : network.routes[static_cast<std::size_t>(from * t.ranks() + to)].wires)
      sent[static_cast<std::size_t>(wire)] += times * chains.bytes_per_second;
  };
  for (const Order& order : chains.orders) {
    ASSERT_EQ(static_cast<int>(order.size()), t.ranks());
    const auto rank = [&](int node, int place) {
      return order[static_cast<std::size_t>(node * gpus + place)];
    };
    for (int node = 0; node < nodes; ++node) {
      send(rank(node, 0), rank((node + 1) % nodes, 0), 2);
      for (int place = 0; place < gpus; ++place) {
        EXPECT_EQ(t.gpu(rank(node, place)).node, node)
            << "place " << place << " of the part for node " << node << ": its node";
        EXPECT_EQ(rank(node, place) % gpus, rank(0, place) % gpus) << "nodes have the same chain";
        if (place == 0) continue;
        send(rank(node, place - 1), rank(node, place), 1);
        send(rank(node, place), rank(node, place - 1), 1);
      }
    }
  }
  for (std::size_t wire = 0; wire < sent.size(); ++wire)
    EXPECT_LE(sent[wire], t.bytes_per_second(static_cast<int>(wire)) * (1 + 1e-9))
        << "bytes/s over the wire from " << t.name_of(t.ends_of(static_cast<int>(wire)).first)
        << " to " << t.name_of(t.ends_of(static_cast<int>(wire)).second);
}

// A card sends up and down, too: half of it for each.
TEST(FindChains, OfClustersEnterAndLeaveNodesByTheHeadsCards) {
  expect_trees(cluster(nvswitch_node(1), 2, hdr_fabric()), 1, 12);
  expect_trees(cluster(nvswitch_node(), 3, hdr_fabric()), 8, 12);
  expect_trees(cluster(dgx1(), 2, edr_fabric()), 4, 6);
}

const Order kNatural{0, 1, 2, 3, 4, 5, 6, 7};
const Order kInterleaved{0, 4, 1, 5, 2, 6, 3, 7};  // each hop from one processor to the other
const Order kBySwitches{0, 2, 4, 6, 1, 3, 5, 7};   // each hop from one PCIe switch to another

int crossings_between(const Topology& t, const Order& ring, const std::string& a,
                      const std::string& b) {
  const std::vector<int> times = crossings(t, std::vector<Order>{ring});
  for (int wire = 0; wire < static_cast<int>(times.size()); ++wire)
    if (t.name_of(t.ends_of(wire).first) == a && t.name_of(t.ends_of(wire).second) == b)
      return times[static_cast<std::size_t>(wire)];
  ADD_FAILURE() << "no wire from " << a << " to " << b;
  return -1;
}

// Of eight hops in the bad order four lead from CPU 0 to CPU 1, and four back; each switch sends up
// what its two GPUs send.
TEST(Crossings, AreCountedByHandOnThePcieTree) {
  const Topology t = pcie_tree();
  EXPECT_EQ(crossings_between(t, kInterleaved, "CPU 0", "CPU 1"), 4)
      << "the ring 0 4 1 5 2 6 3 7: messages from CPU 0 to CPU 1";
  EXPECT_EQ(crossings_between(t, kInterleaved, "CPU 1", "CPU 0"), 4)
      << "the ring 0 4 1 5 2 6 3 7: messages from CPU 1 to CPU 0";
  EXPECT_EQ(crossings_between(t, kInterleaved, "PCIe switch 0", "CPU 0"), 2)
      << "the ring 0 4 1 5 2 6 3 7: messages from PCIe switch 0 to CPU 0";
  EXPECT_EQ(crossings_between(t, kInterleaved, "GPU 3", "PCIe switch 1"), 1)
      << "the ring 0 4 1 5 2 6 3 7: messages from GPU 3 to PCIe switch 1";
  EXPECT_EQ(crossings_between(t, kBySwitches, "CPU 0", "CPU 1"), 2)
      << "the ring 0 2 4 6 1 3 5 7: messages from CPU 0 to CPU 1";
  EXPECT_EQ(crossings_between(t, kBySwitches, "PCIe switch 2", "CPU 1"), 2)
      << "the ring 0 2 4 6 1 3 5 7: messages from PCIe switch 2 to CPU 1";
  const auto rate = [&](const Order& ring) {
    return ring_bytes_per_second(t, std::vector<Order>{ring});
  };
  EXPECT_EQ(rate(kNatural), 10 * kGigabyte) << "bytes/s of the ring 0 1 2 3 4 5 6 7";
  EXPECT_EQ(rate(kBySwitches), 10 * kGigabyte / 2) << "bytes/s of the ring 0 2 4 6 1 3 5 7";
  EXPECT_EQ(rate(kInterleaved), 10 * kGigabyte / 4) << "bytes/s of the ring 0 4 1 5 2 6 3 7";
  EXPECT_EQ(ring_bytes_per_second(dgx1(), std::vector<Order>{kNatural}), 6 * kGigabyte)
      << "bytes/s of the ring 0 1 2 ... 7 on a DGX-1";
  EXPECT_EQ(ring_bytes_per_second(t, {}), 0) << "bytes/s of no ring";
  EXPECT_EQ(message_of([&] { rate({0, 8}); }), "crossings: rank 8, there are 8");
}

TEST(Crossings, OfFoundRingsLeaveThemTheirRate) {
  for (const Topology& t :
       {pcie_tree(), dgx1(), nvswitch_node(), cluster(nvswitch_node(), 2, hdr_fabric())}) {
    const Channels rings = find_rings(t);
    EXPECT_GE(ring_bytes_per_second(t, rings.orders), rings.bytes_per_second * (1 - 1e-9))
        << "bytes/s of the rings that were found";
  }
}

}  // namespace
}  // namespace aisc
