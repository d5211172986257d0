#include "bench/emulate_comm.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "common/comm/launch.h"
#include "common/core/error.h"
#include "common/core/system/files.h"

namespace aisc {
std::optional<double> seconds_by_formula(const CommCase& c, const Network& network) {
  const int p = c.ranks();
  if (network.node_of(p - 1) != 0) return std::nullopt;
  const double a = network.link.latency_seconds, b = network.link.seconds_per_byte;
  const double g = network.reduce_seconds_per_byte;
  const auto bytes = static_cast<double>(c.bytes());
  const double part = bytes * (p - 1) / p;
  switch (c.op()) {
    case CommOp::AllReduce:
      return 2 * (p - 1) * a + part * (2 * b + g);
    case CommOp::ReduceScatter:
      return (p - 1) * a + part * (b + g);
    case CommOp::Broadcast:
      return std::bit_width(static_cast<unsigned>(p - 1)) * (a + bytes * b);
    default:
      return (p - 1) * a + part * b;
  }
}

double CommEmulator::run(const CommCase& c, const Network& network) {
  std::mutex mutex;
  double seconds = 0;
  launch(
      {.ranks = c.ranks(),
       .timeout_seconds = 600,  // thousands of ranks on few cores take their time; so does pacing
       .network = network,
       .pace = pace_,
       .record_trace = true},
      [&](const Rank& rank) {
        const int r = rank.world.rank();
        const Tensor in({c.in_count()}, DType::F32, rank.device, Purpose::Workspace);
        const Tensor out({c.out_count()}, DType::F32, rank.device, Purpose::Workspace);
        c.fill(r, in.values<float>(), out.values<float>());
        start(rank.world, c, in.view(), out.view()).wait();
        const std::string wrong = c.check(r, out.values<float>());
        if (!wrong.empty()) fail(wrong);
        const std::scoped_lock lock(mutex);
        seconds = std::max(seconds, rank.clock.now());
        for (TraceEvent& span : rank.trace.events()) {
          span.begin_seconds += begin_seconds_;
          span.end_seconds += begin_seconds_;
          events_.push_back({r, std::move(span)});
        }
      });
  begin_seconds_ += seconds;
  return seconds;
}

void CommEmulator::write_trace(const std::string& path) const {
  nlohmann::json rows = nlohmann::json::array();
  std::set<int> ranks;
  for (const auto& [rank, span] : events_) {
    if (ranks.insert(rank).second)
      rows.push_back({{"ph", "M"},
                      {"name", "process_name"},
                      {"pid", rank},
                      {"args", {{"name", "rank " + std::to_string(rank)}}}});
    rows.push_back({{"ph", "X"},
                    {"name", span.name},
                    {"cat", span.part},
                    {"pid", rank},
                    {"tid", span.lane},
                    {"ts", span.begin_seconds * 1e6},  // microseconds
                    {"dur", (span.end_seconds - span.begin_seconds) * 1e6}});
  }
  write_file(path, nlohmann::json{{"traceEvents", rows}}.dump() + "\n");
}

}  // namespace aisc
