// Collectives of which only the time matters.
#pragma once

#include "common/comm/simulate.h"
#include "tests/support/exact_network.h"

namespace aisc::exact {

// The call on a communicator, whose ranks are threads; the root is rank 0.
inline void call(Rank& rank, const Collective& c) {
  const int p = rank.world.size();
  const std::int64_t n = c.call.count, all = n * p;
  switch (c.call.op) {
    case CommOp::AllReduce:
      return rank.world.all_reduce(f32(rank, n)).wait();
    case CommOp::Reduce:
      return rank.world.reduce(f32(rank, n), f32(rank, n), 0).wait();
    case CommOp::ReduceScatter:
      return rank.world.reduce_scatter(f32(rank, all), f32(rank, n)).wait();
    case CommOp::AllGather:
      return rank.world.all_gather(f32(rank, n), f32(rank, all)).wait();
    case CommOp::Gather:
      return rank.world.gather(f32(rank, n), f32(rank, all), 0).wait();
    case CommOp::Scatter:
      return rank.world.scatter(f32(rank, all), f32(rank, n), 0).wait();
    case CommOp::Broadcast:
      return rank.world.broadcast(f32(rank, n), 0).wait();
    case CommOp::AllToAll:
      return rank.world.all_to_all(f32(rank, all), f32(rank, all)).wait();
    default:
      rank.world.barrier();
  }
}

}  // namespace aisc::exact
