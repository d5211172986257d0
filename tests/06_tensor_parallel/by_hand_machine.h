// A machine whose figures are powers of two, so that sums of times are exact and == is the right
// comparison.
#pragma once

#include "common/model/emulated_device.h"

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

// How long `work` takes on rank 0, and how long each of its operations by itself, in their order.
struct Times {
  double all = 0;
  std::vector<double> operations = {};
  double computing() const {
    double sum = 0;
    for (const double seconds : operations) sum += seconds;
    return sum;
  }
};
template <class Work>
Times times_of(const Machine& machine, const Rank& rank, const Work& work) {
  Times times;
  const double begin = rank.clock.now();
  rank.device.listen(
      [&](const OpCost& cost) { times.operations.push_back(machine.seconds(cost)); });
  work();
  rank.device.listen({});
  times.all = rank.clock.now() - begin;
  return times;
}

}  // namespace aisc::split
