#include "common/train/rank_traces.h"

#include <nlohmann/json.hpp>

#include "common/core/system/files.h"
#include "common/train/rank_text.h"

namespace aisc {

void write_traces(const Rank& rank, const std::string& path) {
  using Json = nlohmann::json;
  const std::vector<std::string> traces = gather_texts(rank, rank.trace.to_chrome_json());
  if (traces.empty()) return;
  Json all = Json::parse(traces[0]);
  for (std::size_t other = 1; other < traces.size(); ++other) {
    const Json trace = Json::parse(traces[other]);
    Json& events = all["traceEvents"];
    events.insert(events.end(), trace["traceEvents"].begin(), trace["traceEvents"].end());
  }
  write_file(path, all.dump() + "\n");
}

}  // namespace aisc
