// What a rank asks of a communicator: the operations, one call of one, and how errors show it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/core/dtype.h"

namespace aisc {

enum class ReduceOp { Sum, Product, Min, Max };  // no average: dividing is something one must see
const char* name_of(ReduceOp op);                // "sum", ...

enum class CommOp {
  Exchange,
  Send,
  Recv,
  AllReduce,
  Reduce,
  ReduceScatter,
  AllGather,
  Gather,
  Scatter,
  Broadcast,
  AllToAll,
  AllToAllV,
  Barrier,
  Split
};
inline constexpr int kCommOpCount = 14;
const char* name_of(CommOp op);  // "all_reduce", ...

// One call, without its buffers: what all ranks must agree on.
struct Call {
  CommOp op = CommOp::Barrier;
  // Elements of one rank's part: of all_reduce, reduce and broadcast the whole buffer; of
  // reduce_scatter, all_gather, gather, scatter and all_to_all one chunk. 0 for all_to_all_v (whose
  // counts differ between ranks), barrier and split.
  std::int64_t count = 0;
  DType dtype = DType::U8;
  ReduceOp reduce = ReduceOp::Sum;
  int peer = -1;  // the root; of send and recv the other side

  bool operator==(const Call&) const = default;
};

// A send, a receive, or several at once: of pairs of ranks, not of all.
bool is_message(const Call& call);

// Who meets in a call of `self` on a communicator of `size` ranks, which are world_rank(r) of the
// world: all of them, or of a message the sender and the receiver. Empty for an exchange.
std::vector<int> ranks_of(const Call& call, int self, int size,
                          const std::function<int(int rank)>& world_rank);

// "all_reduce(16 x F32)", "reduce(4 x F32, max, root 2)", "recv(8 x U8) from 3", "barrier".
std::string to_string(const Call& call);

}  // namespace aisc
