#include "09_collectives/machines.h"

#include <utility>

#include "09_collectives/halving.h"
#include "09_collectives/rails.h"
#include "09_collectives/ring.h"
#include "common/comm/simulate.h"

namespace aisc {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

OrderRow compare(std::string machine, const Topology& topology, Order bad_order) {
  const std::int64_t bytes = 256 * kMiB;
  const int p = topology.ranks();
  const Network network = topology.network();
  const auto seconds = [&](const PlanMaker& maker) {
    return simulate(maker, call_of(CommOp::AllReduce, p, bytes), p, network).seconds;
  };
  OrderRow row{.machine = std::move(machine),
               .ranks = p,
               .rings = find_rings(topology),
               .trees = find_chains(topology),
               .bad_order = std::move(bad_order)};
  row.found_seconds = seconds(all_reduce_along(row.rings.orders));
  row.bad_seconds = seconds(all_reduce_along({row.bad_order}));
  const double sent = 2.0 * (p - 1) / p * static_cast<double>(bytes);
  row.found_busbw = sent / row.found_seconds;
  row.bad_busbw = sent / row.bad_seconds;
  row.rabenseifner_busbw = sent / seconds(rabenseifner_all_reduce);
  return row;
}

// Nodes whose ranks take turns on the ring: every hop leaves a node.
Order round_robin(int nodes, int ranks_per_node) {
  Order order;
  for (int l = 0; l < ranks_per_node; ++l)
    for (int k = 0; k < nodes; ++k) order.push_back(k * ranks_per_node + l);
  return order;
}

}  // namespace

std::vector<OrderRow> compare_orders() {
  std::vector<OrderRow> rows;
  rows.push_back(compare("PCIe tree", pcie_tree(), {0, 4, 1, 5, 2, 6, 3, 7}));
  rows.push_back(compare("DGX-1", dgx1(), natural_ring(8)));
  rows.push_back(compare("NVSwitch", nvswitch_node(), natural_ring(8)));
  rows.push_back(compare("2 NVSwitch nodes, 1 card", cluster(nvswitch_node(1), 2, hdr_fabric()),
                         round_robin(2, 8)));
  rows.push_back(compare("2 NVSwitch nodes, 8 cards", cluster(nvswitch_node(8), 2, hdr_fabric()),
                         natural_ring(16)));
  return rows;
}

std::vector<RailRow> compare_rails() {
  std::vector<RailRow> rows;
  const PlanMaker rails = [](const Collective& c, int rank, int size) {
    return rail_all_to_all(c, rank, size, 8);
  };
  for (const int nodes : {2, 4, 8})
    for (const double oversubscription : {1.0, 2.0, 4.0}) {
      Fabric fabric = hdr_fabric();
      fabric.oversubscription = oversubscription;
      const Topology topology = cluster(nvswitch_node(8), nodes, fabric);
      const Network network = topology.network();
      const int p = topology.ranks();
      const Collective call = call_of(CommOp::AllToAll, p, kMiB * p);
      rows.push_back({nodes, oversubscription,
                      simulate(pairwise_all_to_all, call, p, network).seconds,
                      simulate(rails, call, p, network).seconds});
    }
  return rows;
}

}  // namespace aisc
