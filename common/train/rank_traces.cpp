#include "common/train/rank_traces.h"

#include <nlohmann/json.hpp>

#include "common/core/system/files.h"

namespace aisc {
namespace {

using Json = nlohmann::json;

void send_text(const Rank& rank, std::string text, int to) {
  CpuDevice host;
  auto size = static_cast<std::int64_t>(text.size());
  const View header(&size, {1}, DType::I64, host);
  const View body(text.data(), {size}, DType::U8, host);
  rank.world.send(header, to).wait();  // comm: how many bytes follow
  rank.world.send(body, to).wait();    // comm: the text
}

std::string recv_text(const Rank& rank, int from) {
  CpuDevice host;
  std::int64_t size = 0;
  const View header(&size, {1}, DType::I64, host);
  rank.world.recv(header, from).wait();  // comm: how many bytes follow
  std::string text(static_cast<std::size_t>(size), '\0');
  const View body(text.data(), {size}, DType::U8, host);
  rank.world.recv(body, from).wait();  // comm: the text
  return text;
}

}  // namespace

void write_traces(const Rank& rank, const std::string& path) {
  const std::string mine = rank.trace.to_chrome_json();
  if (rank.world.rank() > 0) return send_text(rank, mine, 0);
  Json all = Json::parse(mine);
  for (int other = 1; other < rank.world.size(); ++other) {
    const Json trace = Json::parse(recv_text(rank, other));
    Json& events = all["traceEvents"];
    events.insert(events.end(), trace["traceEvents"].begin(), trace["traceEvents"].end());
  }
  write_file(path, all.dump() + "\n");
}

}  // namespace aisc
