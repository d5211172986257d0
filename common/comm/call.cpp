#include "common/comm/call.h"

#include <fmt/format.h>

#include <array>

namespace aisc {
namespace {

constexpr std::array<const char*, kCommOpCount> kCommOpNames{
    "exchange",       "send",         "recv",    "all_reduce", "reduce",
    "reduce_scatter", "all_gather",   "gather",  "scatter",    "broadcast",
    "all_to_all",     "all_to_all_v", "barrier", "split"};
constexpr std::array<const char*, 4> kReduceOpNames{"sum", "product", "min", "max"};

bool reduces(CommOp op) {
  return op == CommOp::AllReduce || op == CommOp::Reduce || op == CommOp::ReduceScatter;
}

}  // namespace

const char* name_of(CommOp op) { return kCommOpNames[static_cast<std::size_t>(op)]; }
const char* name_of(ReduceOp op) { return kReduceOpNames[static_cast<std::size_t>(op)]; }

bool is_message(const Call& call) {
  return call.op == CommOp::Exchange || call.op == CommOp::Send || call.op == CommOp::Recv;
}

std::vector<int> ranks_of(const Call& call, int self, int size,
                          const std::function<int(int rank)>& world_rank) {
  if (call.op == CommOp::Exchange) return {};
  if (call.op == CommOp::Send) return {self, world_rank(call.peer)};
  if (call.op == CommOp::Recv) return {world_rank(call.peer), self};
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(world_rank(rank));
  return ranks;
}

std::string to_string(const Call& call) {
  const char* name = name_of(call.op);
  if (call.op == CommOp::Barrier || call.op == CommOp::Split || call.op == CommOp::Exchange)
    return name;
  if (call.op == CommOp::AllToAllV) return fmt::format("{}({})", name, name_of(call.dtype));
  const std::string what = fmt::format("{} x {}", call.count, name_of(call.dtype));
  if (call.op == CommOp::Send) return fmt::format("{}({}) to {}", name, what, call.peer);
  if (call.op == CommOp::Recv) return fmt::format("{}({}) from {}", name, what, call.peer);
  std::string text = fmt::format("{}({}", name, what);
  if (reduces(call.op) && call.reduce != ReduceOp::Sum)
    text += fmt::format(", {}", name_of(call.reduce));
  if (call.peer >= 0) text += fmt::format(", root {}", call.peer);
  return text + ")";
}

}  // namespace aisc
