#include "bench/comm_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "common/core/error.h"

namespace aisc {
namespace {

// A check of large outputs of many ranks would else take longer than the operation.
constexpr std::int64_t kMostInputsLookedAt = 1 << 18;

// Element i of a rank's input: -64 .. 63.
float input(int rank, std::int64_t i) {
  auto x =
      static_cast<std::uint32_t>(i) * 0x9e3779b1u + static_cast<std::uint32_t>(rank) * 0x85ebca6bu;
  x = (x ^ (x >> 15)) * 0x2c1b3c6du;
  return static_cast<float>(static_cast<int>(x >> 25) - 64);
}

}  // namespace

CommOp bench_operation(const std::string& name) {
  for (const CommOp op : kBenchOperations)
    if (name == name_of(op)) return op;
  fail("no operation '" + name + "'");
}

CommCase::CommCase(CommOp op, int ranks, std::int64_t bytes) : op_(op), ranks_(ranks) {
  const std::int64_t unit = in_place() ? 1 : ranks;
  count_ = std::max<std::int64_t>(bytes / 4 / unit, 1) * unit;
}

bool CommCase::in_place() const { return op_ == CommOp::AllReduce || op_ == CommOp::Broadcast; }

std::int64_t CommCase::in_count() const {
  if (in_place()) return 0;
  return op_ == CommOp::AllGather ? chunk() : count_;
}

std::int64_t CommCase::out_count() const { return op_ == CommOp::ReduceScatter ? chunk() : count_; }

double CommCase::bus_factor() const {
  if (op_ == CommOp::Broadcast) return 1;
  const double part = static_cast<double>(ranks_ - 1) / ranks_;
  return op_ == CommOp::AllReduce ? 2 * part : part;
}

void CommCase::fill(int rank, std::span<float> in, std::span<float> out) const {
  const bool given = op_ == CommOp::AllReduce || (op_ == CommOp::Broadcast && rank == 0);
  const auto out_size = static_cast<std::size_t>(out_count());
  for (std::size_t i = 0; i < static_cast<std::size_t>(in_count()); ++i)
    in[i] = input(rank, static_cast<std::int64_t>(i));
  for (std::size_t i = 0; i < out_size; ++i)
    out[i] =
        given ? input(rank, static_cast<std::int64_t>(i)) : std::numeric_limits<float>::quiet_NaN();
}

float CommCase::expected(int rank, std::int64_t i) const {
  const auto source = static_cast<int>(i / std::max<std::int64_t>(chunk(), 1));
  switch (op_) {
    case CommOp::AllGather:
      return input(source, i % chunk());
    case CommOp::AllToAll:
      return input(source, rank * chunk() + i % chunk());
    case CommOp::Broadcast:
      return input(0, i);
    default: {
      float sum = 0;
      const std::int64_t begin = op_ == CommOp::ReduceScatter ? rank * chunk() : 0;
      for (int r = 0; r < ranks_; ++r) sum += input(r, begin + i);
      return sum;
    }
  }
}

std::string CommCase::check(int rank, std::span<const float> out) const {
  const std::int64_t last = out_count() - 1;
  const std::int64_t stride = out_count() * ranks_ / kMostInputsLookedAt + 1;
  for (std::int64_t i = 0;; i = std::min(i + stride, last)) {
    const float found = out[static_cast<std::size_t>(i)];
    if (!(found == expected(rank, i)))
      return fmt::format("{}, {} ranks, {} bytes: element {} of rank {} is {}, expected {}",
                         name_of(op_), ranks_, bytes(), i, rank, found, expected(rank, i));
    if (i == last) return "";
  }
}

Work start(Communicator& world, const CommCase& c, const View& in, const View& out) {
  switch (c.op()) {
    case CommOp::AllReduce:
      return world.all_reduce(out);  // comm: the sum of all ranks' buffers to all
    case CommOp::ReduceScatter:
      return world.reduce_scatter(in, out);  // comm: of the sum a chunk to each
    case CommOp::AllGather:
      return world.all_gather(in, out);  // comm: a chunk of each to all
    case CommOp::AllToAll:
      return world.all_to_all(in, out);  // comm: a chunk of each to each
    default:
      return world.broadcast(out, 0);  // comm: rank 0's buffer to all
  }
}

std::string check_call(Communicator& world, const CommCase& c, const View& in, const View& out,
                       const PlanTable& plans) {
  c.fill(world.rank(), in.values<float>(), out.values<float>());
  const std::int64_t steps = world.stats().steps;
  start(world, c, in, out).wait();
  if (plans[c.op()] && world.stats().steps == steps)
    return fmt::format("{}, {} ranks: rank {} did not run its plan", name_of(c.op()), c.ranks(),
                       world.rank());
  return c.check(world.rank(), out.values<float>());
}

PlanTable plans_of(const AlgorithmTable& algorithms, CommOp op, const std::string& algorithm) {
  PlanTable plans;
  if (algorithm.empty()) return plans;
  if (!algorithms)
    fail(fmt::format("{}: no algorithm '{}': this program has none", name_of(op), algorithm));
  plans[op] = algorithms(op, algorithm);
  return plans;
}

}  // namespace aisc
