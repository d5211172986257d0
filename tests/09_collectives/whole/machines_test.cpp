// The module's algorithms on whole machines: rings along the orders that the search finds, and
// all-to-all on rails.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "09_collectives/rails.h"
#include "09_collectives/ring.h"
#include "09_collectives/search.h"
#include "common/comm/simulate.h"
#include "tests/support/exact_network.h"

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

TEST(FoundRings, BeatBadOrders) {
  const Topology tree = pcie_tree(), dgx = dgx1();
  const Ring interleaved{0, 4, 1, 5, 2, 6, 3, 7};
  EXPECT_NEAR(bus_bandwidth(tree, find_rings(tree).orders) / bus_bandwidth(tree, {interleaved}), 4,
              0.01);
  EXPECT_NEAR(bus_bandwidth(dgx, find_rings(dgx).orders) / bus_bandwidth(dgx, {natural_ring(8)}),
              25, 0.1);
}

TEST(FoundRings, SumOnACommunicatorInTheSameTime) {
  const Topology t = dgx1();
  const Channels rings = find_rings(t);
  LaunchOptions options{.ranks = 8, .network = t.network()};
  options.plans[CommOp::AllReduce] = all_reduce_along(rings.orders);
  const auto times = exact::end_times(std::move(options), [](Rank rank) {
    const Tensor x({48 * 64 + 5}, DType::F32, rank.device);
    std::fill_n(x.data<float>(), x.count(), static_cast<float>(rank.world.rank()));
    rank.world.all_reduce(x).wait();
    for (std::int64_t i = 0; i < x.count(); ++i) ASSERT_EQ(x.data<float>()[i], 28);
  });
  EXPECT_EQ(*std::max_element(times.begin(), times.end()),
            all_reduce_seconds(t, rings.orders, 4 * (48 * 64 + 5)));
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
