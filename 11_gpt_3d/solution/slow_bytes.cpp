#include "11_gpt_3d/slow_bytes.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/core/error.h"

namespace aisc {

std::int64_t bytes_between_nodes(const MeshShape& shape, const MeshOrder& order, int ranks_per_node,
                                 const StepBytes& bytes) {
  if (ranks_per_node < 1)
    fail(fmt::format("nodes of {} ranks, expected 1 or more", ranks_per_node));
  // LAB 11.4: bytes between nodes
  // > groups_of() has the ranks that talk. Which rank of a group sends to which, and how much?
  // > Which of these pairs lie in different nodes?
  std::int64_t sum = 0;
  const auto send = [&](int from, int to, std::int64_t count) {
    if (from / ranks_per_node != to / ranks_per_node) sum += count;
  };
  const auto send_around = [&](MeshDirection direction, std::int64_t count) {
    for (const std::vector<int>& ring : groups_of(direction, shape, order))
      for (std::size_t i = 0; i < ring.size(); ++i)
        send(ring[i], ring[(i + 1) % ring.size()], count);
  };
  send_around(MeshDirection::Tensor, bytes.tp);
  send_around(MeshDirection::Data, bytes.dp);
  for (const std::vector<int>& stages : groups_of(MeshDirection::Pipeline, shape, order)) {
    for (std::size_t i = 1; i < stages.size(); ++i) {
      send(stages[i - 1], stages[i], bytes.forward);
      send(stages[i], stages[i - 1], bytes.backward);
    }
    send(stages.front(), stages.back(), 2 * bytes.tables);  // there and back
  }
  return sum;
  // END LAB 11.4
}

MeshOrder best_order(const MeshShape& shape, int ranks_per_node, const StepBytes& bytes) {
  // LAB 11.4: bytes between nodes
  // > There are six. Of equal ones the first.
  const std::vector<MeshOrder> orders = all_orders();
  return *std::min_element(orders.begin(), orders.end(),
                           [&](const MeshOrder& a, const MeshOrder& b) {
                             return bytes_between_nodes(shape, a, ranks_per_node, bytes) <
                                    bytes_between_nodes(shape, b, ranks_per_node, bytes);
                           });
  // END LAB 11.4
}

}  // namespace aisc
