// Machines that one can buy, as far as their cables are published.
//
// Bytes per second. NVLink: 25 GB/s in each direction, six for a V100 (NVIDIA, "DGX-1 With Tesla
// V100 System Architecture", WP-08437), twelve for an A100 (NVIDIA: 600 GB/s, both directions
// together). PCIe and processor to processor as NCCL counts them, which is what arrives and not
// what the standard allows (NCCL, src/graph/topo.h): PCI_BW, 12 GB/s for 16 lanes of PCIe 3, twice
// that for PCIe 4; BDW_QPI_BW 6 (Broadwell, in the DGX-1), SKL_QPI_BW 10 (Skylake), AMD_ZEN12_BW 16
// (the EPYC of the DGX A100). For an NVLink NCCL counts 20; here it is NVIDIA's 25.
//
// Latencies. NCCL, src/graph/tuning.cc of 2020, hwLat of rings in the protocol for short messages,
// from GPU to GPU: NVLink 0.47 us, PCIe 1.0, network 2.7. Assumed: cables of one kind share that
// equally, and those that the table does not have (from processor to processor, up to the spine)
// take as long as their neighbours.
#include <fmt/format.h>

#include <array>

#include "09_collectives/topology.h"
#include "common/core/error.h"

namespace aisc {
namespace {

using Kind = Vertex::Kind;
constexpr double kGigabyte = 1e9, kMicrosecond = 1e-6;
constexpr int kGpus = 8, kSwitches = 4, kCpus = 2;

constexpr double kNvlinkSeconds = 0.47 * kMicrosecond;
constexpr double kPcieSeconds = 1.0 / 2 * kMicrosecond;  // GPU, switch, GPU: two cables
// GPU, switch, card, rail switch, card, switch, GPU: four cables PCIe, two of the network.
constexpr double kNetworkSeconds = (2.7 - 4 * 0.5) / 2 * kMicrosecond;

Speeds speeds_of(double pcie_gigabytes, double cpus_gigabytes) {
  return {.nvlink = {25 * kGigabyte, kNvlinkSeconds},
          .pcie = {pcie_gigabytes * kGigabyte, kPcieSeconds},
          .cpus = {cpus_gigabytes * kGigabyte, kPcieSeconds}};
}

// Vertices 0 .. 7 are the GPUs, 8 .. 11 the switches, 12 and 13 the processors, then come cards.
Topology pcie_part(const Speeds& speeds, int cards) {
  if (cards != 1 && (cards < kSwitches || cards % kSwitches != 0))
    fail(fmt::format("topology: {} cards, 1 or equally many at each of {} switches expected", cards,
                     kSwitches));
  Topology t;
  for (int i = 0; i < kGpus; ++i) t.add(Kind::Gpu, 0);
  for (int i = 0; i < kSwitches; ++i) t.add(Kind::PcieSwitch, 0);
  for (int i = 0; i < kCpus; ++i) t.add(Kind::Cpu, 0);
  const int first_switch = kGpus, first_cpu = kGpus + kSwitches;
  for (int i = 0; i < kGpus; ++i) t.connect(i, first_switch + i * kSwitches / kGpus, speeds.pcie);
  for (int i = 0; i < kSwitches; ++i)
    t.connect(first_switch + i, first_cpu + i * kCpus / kSwitches, speeds.pcie);
  t.connect(first_cpu, first_cpu + 1, speeds.cpus);
  for (int i = 0; i < cards; ++i)
    t.connect(t.add(Kind::Card, 0), first_switch + i * kSwitches / std::max(cards, kSwitches),
              speeds.pcie);
  return t;
}

// NVLinks from GPU to GPU, as `nvidia-smi topo -m` prints them on a DGX-1 (in
// microsoft/msccl-tools, tests/test_topologies.py; and in many reports): NV1, NV2. NVIDIA's paper:
// "three interwoven rings of single NVLink connections".
constexpr std::array<std::array<int, kGpus>, kGpus> kDgx1{{{0, 1, 1, 2, 2, 0, 0, 0},
                                                           {1, 0, 2, 1, 0, 2, 0, 0},
                                                           {1, 2, 0, 2, 0, 0, 1, 0},
                                                           {2, 1, 2, 0, 0, 0, 0, 1},
                                                           {2, 0, 0, 0, 0, 1, 1, 2},
                                                           {0, 2, 0, 0, 1, 0, 2, 1},
                                                           {0, 0, 1, 0, 1, 2, 0, 2},
                                                           {0, 0, 0, 1, 2, 1, 2, 0}}};
constexpr int kA100Nvlinks = 12;

}  // namespace

Speeds pcie_tree_speeds() { return speeds_of(12, 10); }
Speeds dgx1_speeds() { return speeds_of(12, 6); }

Speeds nvswitch_speeds() {
  Speeds speeds = speeds_of(24, 16);
  speeds.nvlink.latency_seconds /= 2;  // GPU, switch, GPU: two cables
  return speeds;
}

Topology pcie_tree(const Speeds& speeds) { return pcie_part(speeds, 1); }

// The matrix says PIX, one PCIe switch, for GPUs 2 k and 2 k + 1 with card k.
Topology dgx1(const Speeds& speeds) {
  Topology t = pcie_part(speeds, kSwitches);
  for (int a = 0; a < kGpus; ++a)
    for (int b = a + 1; b < kGpus; ++b) {
      const int links = kDgx1[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)];
      if (links == 0) continue;
      Speed speed = speeds.nvlink;
      speed.bytes_per_second *= links;
      t.connect(a, b, speed);
    }
  return t;
}

// GPUs and cards of a DGX A100: NVIDIA/nccl issue 1505 (NCCL's own description of the machine: both
// cards beneath the switch of both GPUs, two NVLinks to each of six NVSwitches). Assumed: two
// processors with one cable between them, where the machine has four parts of two EPYCs.
Topology nvswitch_node(int cards, const Speeds& speeds) {
  Topology t = pcie_part(speeds, cards);
  const int nvswitch = t.add(Kind::NvSwitch, 0);
  Speed all = speeds.nvlink;
  all.bytes_per_second *= kA100Nvlinks;
  for (int i = 0; i < kGpus; ++i) t.connect(i, nvswitch, all);
  return t;
}

Fabric edr_fabric() { return {.card = {100.0 / 8 * kGigabyte, kNetworkSeconds}}; }
Fabric hdr_fabric() { return {.card = {200.0 / 8 * kGigabyte, kNetworkSeconds}}; }

Topology cluster(const Topology& node, int nodes, const Fabric& fabric) {
  if (nodes < 1) fail(fmt::format("cluster: {} nodes, at least 1 expected", nodes));
  if (!(fabric.oversubscription > 0))
    fail(
        fmt::format("cluster: oversubscription {}, more than 0 expected", fabric.oversubscription));
  if (node.nodes() != 1) fail(fmt::format("cluster: of a cluster of {} nodes", node.nodes()));
  Topology t;
  std::vector<int> order;  // of the ranks, which may be in another one than the GPUs
  std::vector<std::vector<int>> cards(static_cast<std::size_t>(nodes));
  for (int k = 0; k < nodes; ++k) {
    const int first = static_cast<int>(t.vertices().size());
    for (int r = 0; r < node.ranks(); ++r) order.push_back(k * node.ranks() + node.gpu(r).number);
    for (const Vertex& vertex : node.vertices()) {
      const int added = t.add(vertex.kind, k);
      if (vertex.kind == Kind::Card) cards[static_cast<std::size_t>(k)].push_back(added);
    }
    for (const Cable& cable : node.cables())
      t.connect(first + cable.a, first + cable.b, cable.speed);
  }
  const std::size_t rails = cards[0].size();
  if (rails == 0) fail("cluster: a node without a network card");
  const int spine = rails > 1 ? t.add(Kind::Spine, -1) : -1;
  for (std::size_t c = 0; c < rails; ++c) {
    const int rail = t.add(Kind::RailSwitch, -1);
    for (const std::vector<int>& of_node : cards) t.connect(of_node[c], rail, fabric.card);
    if (spine < 0) continue;
    Speed up = fabric.card;
    up.bytes_per_second *= nodes / fabric.oversubscription;
    t.connect(rail, spine, up);
  }
  return t.with_ranks(order);
}

}  // namespace aisc
