#include "common/comm/mpi/choose_plan.h"

namespace aisc::mpi {
namespace {

// Measured between processes of one machine, `./aisc bench comm` (docs/results/mpi_two_cores.md).
constexpr std::int64_t kFewRanks = 8;
constexpr std::int64_t kEager = 4000;      // bytes that MPI sends without asking, its head left out
constexpr std::int64_t kShort = 32 << 10;  // bytes: steps count, not bytes
constexpr std::int64_t kSentTwice = 128 << 10;  // that a rank may send more than it must
constexpr std::int64_t kLong = 4 << 20;         // from here on one message at a time does as well

}  // namespace

Plan choose_plan(const Collective& c, int rank, int size) {
  static const PlanTable defaults = default_plans();
  const CommOp op = c.call.op;
  const std::int64_t part = c.call.count * static_cast<std::int64_t>(size_of(c.call.dtype));
  const std::int64_t whole = part * size;
  // What goes straight to everybody needs one step, but as many messages at once as there are
  // ranks.
  const bool is_direct = size <= kFewRanks ? whole <= kLong : whole <= kShort;
  switch (op) {
    case CommOp::AllReduce:
      // Two halves that need no rendezvous are faster than one message that does.
      if (size == 2 && part > kEager && part <= 2 * kEager) break;
      if (part * (size - 1) <= kSentTwice) return direct_all_reduce(c, rank, size);
      if (part <= kShort) return recursive_doubling_all_reduce(c, rank, size);
      break;
    case CommOp::ReduceScatter:
      if (is_direct) return direct_reduce_scatter(c, rank, size);
      break;
    case CommOp::AllGather:
      if (is_direct) return direct_all_gather(c, rank, size);
      break;
    case CommOp::AllToAll:
      if (is_direct) return direct_all_to_all(c, rank, size);
      break;
    case CommOp::AllToAllV:  // ranks do not know each other's counts
      if (size <= kFewRanks) return direct_all_to_all(c, rank, size);
      break;
    case CommOp::Broadcast:
      if (size <= kFewRanks) return direct_broadcast(c, rank, size);
      break;
    default:
      break;
  }
  return defaults[op](c, rank, size);
}

}  // namespace aisc::mpi
