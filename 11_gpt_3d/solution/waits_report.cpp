#include "11_gpt_3d/waits_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "11_gpt_3d/lateness.h"
#include "11_gpt_3d/waits.h"
#include "common/core/error.h"
#include "common/core/system/files.h"

namespace aisc {
namespace {

using Json = nlohmann::json;

constexpr int kMostRanks = 1 << 16;

struct Traces {
  std::vector<TracedRank> ranks;
  std::map<int, std::vector<std::string>> names;  // of the calls of ranks that have a trace
  bool has(int rank) const { return names.contains(rank); }
};

CommOp operation_of(const std::string& name, const std::string& path) {
  const std::string word = name.substr(0, name.find('('));
  for (int i = 0; i < kCommOpCount; ++i)
    if (const auto op = static_cast<CommOp>(i); word == name_of(op))
      return is_message({.op = op}) ? CommOp::Send : op;
  fail(fmt::format("{}: found a call '{}', expected an operation of common/comm/call.h", path,
                   name));
}

Traces traces_of(const std::vector<std::string>& paths) {
  struct Call {
    std::string name;
    TracedCall call;
  };
  std::map<int, std::vector<Call>> by_rank;
  int last = -1;
  for (const std::string& path : paths) try {
      const Json trace = Json::parse(read_file(path));
      for (const Json& row : trace.at("traceEvents")) {
        const int rank = row.at("pid");
        if (rank < 0 || rank >= kMostRanks)
          fail(fmt::format("{}: found process {}, expected a rank", path, rank));
        last = std::max(last, rank);
        std::vector<Call>& calls = by_rank[rank];
        const auto arguments = row.find("args");
        if (arguments == row.end() || !arguments->contains("ranks")) continue;
        Call call{row.at("name"),
                  {.communicator = row.at("cat"),
                   .op = operation_of(row.at("name"), path),
                   .ranks = arguments->at("ranks"),
                   .begin_seconds = row.at("ts").get<double>() / 1e6}};
        if (row.at("ph") == "X")
          call.call.end_seconds = call.call.begin_seconds + row.at("dur").get<double>() / 1e6;
        for (const int other : call.call.ranks) last = std::max(last, other);
        calls.push_back(std::move(call));
      }
    } catch (const Json::exception& e) {
      fail(fmt::format("{}: expected a trace.json of ./aisc train: {}", path, e.what()));
    }
  Traces traces;
  traces.ranks.resize(static_cast<std::size_t>(last + 1));
  for (int rank = 0; rank <= last; ++rank) {
    TracedRank& traced = traces.ranks[static_cast<std::size_t>(rank)];
    const auto found = by_rank.find(rank);
    traced.ended = found == by_rank.end();  // it has left nothing
    if (traced.ended) continue;
    std::stable_sort(found->second.begin(), found->second.end(), [](const Call& a, const Call& b) {
      return a.call.begin_seconds < b.call.begin_seconds;
    });
    traces.names[rank];
    for (Call& call : found->second) {
      traces.names[rank].push_back(std::move(call.name));
      traced.calls.push_back(std::move(call.call));
    }
  }
  return traces;
}

std::string reason(const Traces& traces, int rank) {
  if (!traces.has(rank)) return "it left no trace: it died, or its file is not here";
  if (mismatched(traces.ranks, rank)) return "others are in another operation than it";
  if (!waits_for(traces.ranks, rank).empty()) return "it waits in a circle";
  return "it computes, or has ended, and has not come";
}

std::string text_of_waits(const Traces& traces) {
  std::string text;
  for (std::size_t r = 0; r < traces.ranks.size(); ++r) {
    const auto rank = static_cast<int>(r);
    const std::vector<TracedCall>& calls = traces.ranks[r].calls;
    const auto open = std::find_if(calls.begin(), calls.end(),
                                   [](const TracedCall& call) { return !call.end_seconds; });
    if (open == calls.end()) continue;
    const std::vector<int> waits = waits_for(traces.ranks, rank);
    text += fmt::format(
        "rank {:<6}{:<14}{:<32}since {:.6f} s   {}\n", rank, open->communicator,
        traces.names.at(rank)[static_cast<std::size_t>(open - calls.begin())], open->begin_seconds,
        waits.empty() ? "all have come" : fmt::format("waits for {}", fmt::join(waits, " ")));
  }
  const std::vector<int> found = causes(traces.ranks);
  if (found.empty()) text += fmt::format("\nNobody waits for another rank.\n");
  for (const int rank : found)
    text += fmt::format("\nLook at rank {}: {}.\n", rank, reason(traces, rank));
  return text;
}

std::string text_of_lateness(const Traces& traces) {
  std::string text = fmt::format(
      "No call is open. Who came last to how many, and how long others waited for it:\n\n"
      "{:>6}{:>10}{:>14}\n",
      "rank", "calls", "seconds");
  for (const auto& [rank, of] : lateness(traces.ranks))
    text += fmt::format("{:>6}{:>10}{:>14.6f}\n", rank, of.calls, of.seconds);
  return text;
}

}  // namespace

std::string waits_report(const std::vector<std::string>& paths) {
  const Traces traces = traces_of(paths);
  std::int64_t calls = 0, open = 0;
  for (const TracedRank& rank : traces.ranks)
    for (const TracedCall& call : rank.calls) {
      ++calls;
      open += call.end_seconds ? 0 : 1;
    }
  if (calls == 0) fail(paths.front() + ": it has no call between ranks");
  return fmt::format("{} ranks, {} of them with a trace; {} calls, {} of which never came back\n\n",
                     traces.ranks.size(), traces.names.size(), calls, open) +
         (open > 0 ? text_of_waits(traces) : text_of_lateness(traces));
}

}  // namespace aisc
