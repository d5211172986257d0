// NVIDIA compares rings, trees and CollNet (sums in the switches) in words: latency linear,
// logarithmic, constant; bandwidth perfect, close to perfect, close to twice. Here the same table
// in numbers, each of which is simulated.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace aisc {

// An all-reduce of `ranks` GPUs. "At most" means: of the GPU that has most.
struct TableRow {
  std::string_view algorithm;  // "ring", "double tree", "in network"
  int ranks = 0;
  double latencies = 0;       // messages one after the other: the time where only latency counts
  double bandwidth = 0;       // bytes of the buffer per second, of a long one, over the link's
  double busiest_rank = 0;    // bytes that a GPU adds, at most, over the mean; 0: none adds
  double busiest_worker = 0;  // the same of a GPU's workers, one for each tree
  int peers = 0;              // other ranks that a GPU sends to, at most
  int flows = 0;              // messages of a GPU under way at once, at most
};

// All three, each for all numbers of ranks (2 and more). The ring is common's, the trees those of
// double_tree.h (exercise 09.11), the sums in the switch those of in_network.h, which is one rank
// more than there are GPUs and is not counted among them. On a GPU each tree has a worker of its
// own (NCCL: a block of threads per channel), so that it is the worker that waits, not the GPU,
// where one tree has nothing to add.
std::vector<TableRow> nvidia_table(std::span<const int> ranks);

std::string to_string(std::span<const TableRow> table);

}  // namespace aisc
