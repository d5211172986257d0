// A machine whose figures are powers of two, so that sums of times are exact and == is the right
// comparison.
#pragma once

#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "common/model/emulated_device.h"
#include "tests/06_tensor_parallel/split_layers.h"

namespace aisc::split {

// An operation takes 2^-10 s, and 2^-20 s for each FLOP or byte, what there is more of. Messages
// take as long a byte as is given.
inline Machine by_hand_machine(double seconds_per_byte) {
  Machine m;
  m.name = "by hand";
  m.flops = {{DType::F64, 0x1p20}};
  m.vector_flops = 0x1p20;
  m.memory_bandwidth = 0x1p20;
  m.launch_seconds = 0x1p-10;
  m.node_link = {0x1p-12, seconds_per_byte};
  m.ranks_per_node = 8;
  return m;
}
inline constexpr double kFastLink = 0x1p-20, kSlowLink = 0x1p-13;

// Of an all-reduce of so many F64 numbers, with nothing beside it.
inline double all_reduce_seconds(const Machine& machine, int ranks, std::int64_t count) {
  double seconds = 0;
  launch(on_machine(machine, ranks), [&](const Rank& rank) {
    const Tensor x = Tensor::zeros({count}, DType::F64, rank.device);
    const double begin = rank.clock.now();
    rank.world.all_reduce(x).wait();
    if (rank.world.rank() == 0) seconds = rank.clock.now() - begin;
  });
  return seconds;
}

// How long something takes, and how long each of its operations by itself, in their order.
struct Times {
  double all = 0;
  std::vector<double> operations = {};
  double computing() const { return std::accumulate(operations.begin(), operations.end(), 0.0); }
};
// Of backward of a layer on rank 0, whose input is x (..., columns).
inline Times backward_times(const Machine& machine, int ranks, const Shape& x,
                            const std::function<std::unique_ptr<Layer>(const Rank&)>& make) {
  Times times;
  launch(on_machine(machine, ranks), [&](const Rank& rank) {
    Owned owned(rank, make(rank));
    Saved saved;
    Tensor y = owned.layer->forward(Tensor::zeros(x, DType::F64, rank.device), saved, {});
    Times own;
    const double begin = rank.clock.now();
    rank.device.listen([&](const OpCost& op) { own.operations.push_back(machine.seconds(op)); });
    owned.layer->backward(std::move(y), saved, {});
    rank.device.listen({});
    own.all = rank.clock.now() - begin;
    if (rank.world.rank() == 0) times = own;
  });
  return times;
}

}  // namespace aisc::split
