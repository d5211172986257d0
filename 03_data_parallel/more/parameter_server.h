// Asynchronous training: nobody waits for the slowest (Dean et al., "Large scale distributed deep
// networks", NIPS 2012, section 4.1; bounded: Ho et al., "More effective distributed ML via a stale
// synchronous parallel parameter server", NIPS 2013).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/comm/rank.h"
#include "common/core/tensor.h"

namespace aisc {

struct ServerOptions {
  std::int64_t updates = 1;  // that the server makes, from whatever workers
  // A worker begins a step only if the slowest has ended at most so many fewer: 0: in rounds;
  // negative: whenever it wants.
  std::int64_t staleness = -1;
};

// An update that the server made.
struct ServedUpdate {
  int worker;         // whose gradient it was: a rank
  std::int64_t step;  // the worker's own, from 0
  std::int64_t age;  // updates between the weights that the gradient was computed from and this one
};

// Rank 0, the server: sends its weights to each worker, ranks 1 .. n - 1, and takes gradients in
// the order in which they come. `update` is called after each has been copied to `gradients`: it
// changes `weights`, which the worker then gets back, if it may begin. After the last update it
// sends all workers home. Returns the updates in their order. Throws Error without a worker.
// weights, gradients (n)
std::vector<ServedUpdate> serve(const Rank& rank, View weights, View gradients,
                                const ServerOptions& options,
                                const std::function<void(const ServedUpdate&)>& update);

// The others, workers: until the server has no more to do, each receives the weights, has `compute`
// fill the gradients, and sends them.
void work(const Rank& rank, View weights, View gradients,
          const std::function<void(std::int64_t step)>& compute);

}  // namespace aisc
