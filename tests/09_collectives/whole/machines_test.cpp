// The module's algorithms on whole machines: rings along the orders that the search finds, and
// all-to-all on rails.
#include <gtest/gtest.h>

#include "09_collectives/rails.h"
#include "09_collectives/ring.h"
#include "09_collectives/search.h"
#include "tests/09_collectives/run_plans.h"

namespace aisc {
namespace {

double all_reduce_seconds(const Topology& t, const std::vector<Ring>& rings, std::int64_t bytes) {
  const Collective call = call_of(CommOp::AllReduce, t.ranks(), bytes);
  return simulate(all_reduce_along(rings), call, t.ranks(), t.network()).seconds;
}

// Bytes that every rank sends per second, 2 (p - 1) / p of the buffer: nccl-tests' busbw.
double bus_bandwidth(const Topology& t, const std::vector<Ring>& rings) {
  const auto p = static_cast<std::int64_t>(t.ranks());
  const std::int64_t bytes = p * 48 * (1 << 22);  // long, and divisible by ranks and rings
  const auto sent = 2 * static_cast<double>((p - 1) * bytes / p);
  return sent / all_reduce_seconds(t, rings, bytes);
}

// Close to: latency is not nothing, and where many messages pass a switch at once they wait.
TEST(FoundRings, BringWhatTheSearchPromises) {
  for (const Topology& t :
       {pcie_tree(), dgx1(), nvswitch_node(), cluster(nvswitch_node(1), 2, hdr_fabric()),
        cluster(nvswitch_node(), 2, hdr_fabric()), cluster(dgx1(), 2, edr_fabric())}) {
    const Channels rings = find_rings(t);
    const double promised = rings.total_bytes_per_second();
    EXPECT_LE(bus_bandwidth(t, rings.orders), promised * (1 + 1e-9));
    EXPECT_GE(bus_bandwidth(t, rings.orders), 0.98 * promised);
  }
}

// Powers of two and no latency: all is bytes, and == is right.
const Speeds kExact{.nvlink = {0x1p22, 0}, .pcie = {0x1p21, 0}, .cpus = {0x1p20, 0}};

const Ring kInterleaved{0, 4, 1, 5, 2, 6, 3, 7};  // each hop from one processor to the other
const Ring kBySwitches{0, 2, 4, 6, 1, 3, 5, 7};   // each hop from one PCIe switch to another

// 14 steps of n/8 bytes, over the cable between the processors as often as the order crosses it.
TEST(BadOrders, CostAPcieTreeItsCrossings) {
  const Topology t = pcie_tree(kExact);
  const double n = 8 * 1024, once = 14 * n / 8 / 0x1p20;
  EXPECT_EQ(all_reduce_seconds(t, find_rings(t).orders, 8 * 1024), once);
  EXPECT_EQ(all_reduce_seconds(t, {kBySwitches}, 8 * 1024), 2 * once);
  EXPECT_EQ(all_reduce_seconds(t, {kInterleaved}, 8 * 1024), 4 * once);
  const Topology other = t.with_ranks(kInterleaved);  // orders of ranks are orders, too
  EXPECT_EQ(all_reduce_seconds(other, {natural_ring(8)}, 8 * 1024), 4 * once);
  EXPECT_EQ(all_reduce_seconds(other, find_rings(other).orders, 8 * 1024), once);
}

// The natural ring of a DGX-1 has two hops without NVLink, 3 to 4 and 7 to 0.
TEST(BadOrders, CostADgx1ItsNvlinks) {
  const Topology t = dgx1(kExact);
  const Channels six = find_rings(t);
  ASSERT_EQ(six.orders.size(), 6u);
  const double n = 48 * 1024;
  EXPECT_EQ(all_reduce_seconds(t, six.orders, 48 * 1024), 14 * n / 48 / 0x1p22);
  EXPECT_EQ(all_reduce_seconds(t, {natural_ring(8)}, 48 * 1024), 14 * n / 8 / 0x1p20);
  const Topology real = dgx1();
  EXPECT_NEAR(bus_bandwidth(real, find_rings(real).orders) / bus_bandwidth(real, {natural_ring(8)}),
              25, 0.1);  // 6 x 25 GB/s to 6 GB/s
}

// Eight rings, each with a card of its own, against the natural ring, which has one: all cards are
// taken in both directions at the same time.
TEST(BadOrders, CostAClusterItsCards) {
  const Topology t = cluster(nvswitch_node(), 2, hdr_fabric());
  EXPECT_NEAR(bus_bandwidth(t, find_rings(t).orders) / bus_bandwidth(t, {natural_ring(16)}), 8,
              0.2);  // latency, and what waits for NVSwitches
}

TEST(FoundRings, SumOnACommunicatorInTheSameTimeAndSoDoBadOrders) {
  for (const Topology& t : {pcie_tree(), dgx1()})
    for (const std::vector<Ring>& rings : {find_rings(t).orders, {kInterleaved}})
      plan_runs::expect_runs_as_planned(all_reduce_along(rings), plan_runs::all_reduce(48 * 64 + 5),
                                        8, t.network());
}

// How many times longer the pairwise all-to-all takes than the one along rails.
double rails_gain(int nodes, double oversubscription, std::int64_t bytes_per_pair) {
  Fabric fabric = hdr_fabric();
  fabric.oversubscription = oversubscription;
  const Topology t = cluster(nvswitch_node(), nodes, fabric);
  const Network network = t.network();
  const Collective call = call_of(CommOp::AllToAll, t.ranks(), bytes_per_pair * t.ranks());
  const PlanMaker rails = [](const Collective& c, int rank, int size) {
    return rail_all_to_all(c, rank, size, 8);
  };
  return simulate(pairwise_all_to_all, call, t.ranks(), network).seconds /
         simulate(rails, call, t.ranks(), network).seconds;
}

// "Doubling all2all performance" is what NVIDIA says of PXN. Long messages gain because cards are
// used evenly; more where the spine is narrow, which rails leave alone.
TEST(Rails, DoubleLongAllToAllsAndMoreWithANarrowSpine) {
  const std::int64_t megabyte = 1 << 20;
  for (const int nodes : {2, 4, 8}) {
    const double wide = rails_gain(nodes, 1, megabyte), narrow = rails_gain(nodes, 4, megabyte);
    EXPECT_GT(wide, 1.9) << nodes;
    EXPECT_LT(wide, 2.7) << nodes;
    EXPECT_GT(narrow, 1.7 * wide) << nodes;
  }
}

// Short ones gain because there are eight times fewer between nodes.
TEST(Rails, SaveLatency) {
  EXPECT_GT(rails_gain(4, 1, 1024), 6);
  EXPECT_LT(rails_gain(4, 1, 1024), 9);
}

}  // namespace
}  // namespace aisc
