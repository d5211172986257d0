// What cables make of a collective: the found rings of real machines against an order that nobody
// has looked for, and all-to-all along rails, all in virtual time. What the demo prints.
#pragma once

#include <string>
#include <vector>

#include "09_collectives/search.h"

namespace aisc {

// An all-reduce of 256 MiB: along all found rings at once, along one ring in a bad order, and
// Rabenseifner's, whose ranks are in their own order.
struct OrderRow {
  std::string machine;
  int ranks = 0;
  Channels rings{}, trees{};
  Order bad_order{};
  double found_seconds = 0, bad_seconds = 0;
  // Bytes per second, as nccl-tests count them.
  double found_busbw = 0, bad_busbw = 0, rabenseifner_busbw = 0;
};
std::vector<OrderRow> compare_orders();

// An all-to-all of 1 MiB from each rank to each, on nodes of 8 GPUs with 8 cards: pairwise, so that
// most messages cross rails, and along the rails.
struct RailRow {
  int nodes = 0;
  double oversubscription = 1;  // of the spine
  double pairwise_seconds = 0, rail_seconds = 0;
};
std::vector<RailRow> compare_rails();

}  // namespace aisc
