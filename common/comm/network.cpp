// When messages leave, pass and are over.
#include "common/comm/network.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/core/error.h"

namespace aisc {

double Network::reduced_seconds(double now, std::int64_t bytes) const {
  return now + static_cast<double>(bytes) * reduce_seconds_per_byte;
}

void Network::check(int ranks) const {
  if (ranks_per_node < 0)
    fail(fmt::format("network: ranks_per_node {}, 0 (flat) or more expected", ranks_per_node));
  if (ranks_per_node > 0 && cards_per_node < 1)
    fail(fmt::format("network: cards_per_node {}, at least 1 expected", cards_per_node));
  if (routes.empty()) return;
  const auto expected = static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks);
  if (routes.size() != expected)
    fail(fmt::format("network: {} routes, {} expected, from each of {} ranks to each",
                     routes.size(), expected, ranks));
  const int wires = static_cast<int>(wire_seconds_per_byte.size());
  for (std::size_t i = 0; i < routes.size(); ++i)
    for (const int wire : routes[i].wires)
      if (wire < 0 || wire >= wires)
        fail(fmt::format("network: wire {} on the route from rank {} to rank {}, there are {}",
                         wire, i / static_cast<std::size_t>(ranks),
                         i % static_cast<std::size_t>(ranks), wires));
}

Passage RankLinks::send(double now, std::int64_t bytes, const Link& link) {
  const double sent = std::max(now, out_free_seconds);
  const double transfer = static_cast<double>(bytes) * link.seconds_per_byte;
  out_free_seconds = sent + transfer;
  return {.sent_seconds = sent,
          .arrives_seconds = sent + link.latency_seconds,
          .transfer_seconds = transfer};
}

double RankLinks::receive(const Passage& passage) {
  if (passage.is_shared) return passage.arrives_seconds;
  in_free_seconds = std::max(passage.arrives_seconds, in_free_seconds) + passage.transfer_seconds;
  return in_free_seconds;
}

SharedWires::SharedWires(const Network& network, int ranks) : network_(network), ranks_(ranks) {
  if (!network.routes.empty())
    free_.resize(network.wire_seconds_per_byte.size());
  else if (network.ranks_per_node > 0)
    free_.resize(2 * static_cast<std::size_t>(network.card_of(ranks - 1) + network.cards_per_node));
}

Passage SharedWires::pass(int from, int to, std::int64_t bytes, double sent_seconds) {
  const auto at = [](auto& values, int i) -> auto& { return values[static_cast<std::size_t>(i)]; };
  const auto count = static_cast<double>(bytes);
  Passage passage{.sent_seconds = sent_seconds, .is_shared = true};
  if (network_.routes.empty()) {
    double& out = at(free_, 2 * network_.card_of(from));
    double& in = at(free_, 2 * network_.card_of(to) + 1);
    const double start = std::max({sent_seconds + network_.card.latency_seconds, out, in});
    passage.arrives_seconds = out = in = start + count * network_.card.seconds_per_byte;
    return passage;
  }
  const auto route = static_cast<std::size_t>(from) * static_cast<std::size_t>(ranks_) +
                     static_cast<std::size_t>(to);
  const Network::Route& way = network_.routes[route];
  double start = sent_seconds + way.latency_seconds, slowest = 0;
  // It starts when all wires of its way are free, and is as fast as the slowest of them; each wire
  // is taken for as long as its own rate needs.
  for (const int wire : way.wires) {
    start = std::max(start, at(free_, wire));
    slowest = std::max(slowest, at(network_.wire_seconds_per_byte, wire));
  }
  for (const int wire : way.wires)
    at(free_, wire) = start + count * at(network_.wire_seconds_per_byte, wire);
  passage.arrives_seconds = start + count * slowest;
  return passage;
}

}  // namespace aisc
