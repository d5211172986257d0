#include "bench/rank_command.h"

#include <istream>
#include <sstream>

#include "bench/comm_case.h"
#include "common/core/error.h"

namespace aisc {

RankCommand read_command(std::istream& in, std::string& file) {
  RankCommand command;
  std::string line, name;
  file.clear();
  if (!std::getline(in, line)) return command;
  std::istringstream words(line);
  words >> name >> command.bytes >> command.calls;
  if (!words) fail("no command: '" + line + "'");
  if (name == "overlap" || name == "overlap_asleep") {
    command.kind = name == "overlap" ? RankCommand::OverlapWithWork : RankCommand::OverlapAsleep;
    std::getline(words >> std::ws, file);
    command.records = file.empty() ? 0 : 1;
  } else {
    command.kind = RankCommand::Collective;
    command.op = static_cast<std::int64_t>(bench_operation(name));
    std::string algorithm;
    words >> algorithm;
    if (algorithm.size() >= sizeof command.algorithm) fail("a long name: '" + algorithm + "'");
    algorithm.copy(command.algorithm, algorithm.size());
  }
  return command;
}

}  // namespace aisc
