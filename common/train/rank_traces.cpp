#include "common/train/rank_traces.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/comm/host_values.h"
#include "common/core/system/files.h"

namespace aisc {

std::string trace_of(int rank) { return "trace.rank_" + std::to_string(rank) + ".json"; }

void write_traces(const Rank& rank, const std::string& path) {
  using Json = nlohmann::json;
  const std::vector<std::string> traces = gather_texts(rank.world, rank.trace.to_chrome_json());
  if (traces.empty()) return;
  for (int other = 1; other < rank.world.size(); ++other)  // of an earlier error
    std::filesystem::remove(std::filesystem::path(path).parent_path() / trace_of(other));
  Json all = Json::parse(traces[0]);
  for (std::size_t other = 1; other < traces.size(); ++other) {
    const Json trace = Json::parse(traces[other]);
    Json& events = all["traceEvents"];
    events.insert(events.end(), trace["traceEvents"].begin(), trace["traceEvents"].end());
  }
  write_file(path, all.dump() + "\n");
}

}  // namespace aisc
