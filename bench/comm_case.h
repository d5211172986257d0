// One case of the communication benchmark: an operation on so many ranks with so many bytes, what
// goes in and what must come out. The benchmark's backends and its MPI program share it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "common/comm/communicator.h"
#include "common/comm/plan.h"

namespace aisc {

inline constexpr std::array kBenchOperations{CommOp::AllReduce, CommOp::ReduceScatter,
                                             CommOp::AllGather, CommOp::AllToAll,
                                             CommOp::Broadcast};
CommOp bench_operation(const std::string& name);  // throws Error naming it

// All in F32. Sums are of all_reduce and reduce_scatter; the root of broadcast is rank 0.
class CommCase {
 public:
  // `bytes` is nccl-tests' size of an operation: a rank's largest buffer. Rounded down to what
  // divides evenly, at least one element a rank.
  CommCase(CommOp op, int ranks, std::int64_t bytes);

  CommOp op() const { return op_; }
  int ranks() const { return ranks_; }
  std::int64_t bytes() const { return 4 * count_; }
  std::int64_t count() const { return count_; }           // elements of the largest buffer
  std::int64_t chunk() const { return count_ / ranks_; }  // of what one rank gives or gets
  bool in_place() const;                                  // all_reduce, broadcast: `out` alone
  std::int64_t in_count() const;                          // 0 in place
  std::int64_t out_count() const;

  // nccl-tests, doc/PERFORMANCE.md: algbw = bytes / seconds, busbw = algbw * bus_factor().
  double bus_factor() const;

  // Random whole numbers, so that sums are exact in any order; what is only written becomes NaN.
  void fill(int rank, std::span<float> in, std::span<float> out) const;
  // Looks at a rank's output after fill and one call, a large one at places all over it. Empty, or
  // the first wrong element, what is there and what is expected.
  std::string check(int rank, std::span<const float> out) const;

 private:
  float expected(int rank, std::int64_t i) const;

  CommOp op_;
  int ranks_;
  std::int64_t count_;
};

// The case's operation, called on a communicator; in place `in` is not used.
Work start(Communicator& world, const CommCase& c, const View& in, const View& out);

// Fills this rank's buffers, calls the operation once, and says what is wrong, or nothing: the
// output, or that the operation did not run by one of `plans`, which are in use, though it is
// there.
std::string check_call(Communicator& world, const CommCase& c, const View& in, const View& out,
                       const PlanTable& plans);

// The algorithms that a benchmark has, by name. Throws Error where there is none of that name.
using AlgorithmTable = std::function<PlanMaker(CommOp op, const std::string& algorithm)>;
// What has `op` run by this algorithm; without a name nothing, so that it runs as the backend does
// it best. Throws Error where there is no table.
PlanTable plans_of(const AlgorithmTable& algorithms, CommOp op, const std::string& algorithm);

}  // namespace aisc
