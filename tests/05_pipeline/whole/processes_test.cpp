// Stages that are processes: under mpirun (05_pipeline/CMakeLists.txt) as many as there are, else
// threads, of which the others are tests.
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "05_pipeline/pipelined.h"
#include "tests/support/conformance.h"
#include "tests/support/serial_run.h"

namespace aisc {
namespace {

struct Case {
  std::string schedule;
  int chunks = 1;
  Again again = Again::Never;
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.schedule << " again " << static_cast<int>(c.again);
}

// Of `pp` stages on as many ranks.
TrainConfig config_of_processes(int pp, const Case& c) {
  TrainConfig config =
      odd_training(pp, 0, 4 * pp, 2 * pp, pp * (c.schedule == "zb-v" ? 2 : c.chunks));
  if (c.schedule == "pipedream") config.clip = 0;
  return config;
}

StepParts parts_of(const Case& c) {
  return pipelined({.schedule = c.schedule, .chunks = c.chunks, .again = c.again});
}

class SynchronousProcesses : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Schedules, SynchronousProcesses,
                         ::testing::Values(Case{"gpipe"}, Case{"1f1b"}, Case{"interleaved", 2},
                                           Case{"zb-h1"}, Case{"zb-h2"}, Case{"zb-v"},
                                           Case{"1f1b", 1, Again::Early}));

TEST_P(SynchronousProcesses, LeaveWhatOneRankLeaves) {
  for (const int ranks : conformance::rank_counts({2, 3})) {
    const TrainConfig config = config_of_processes(ranks, GetParam());
    EXPECT_TRUE(same_steps(serial_steps(config, 2),
                           run_layout({.ranks = ranks}, config, 2, parts_of(GetParam()))))
        << ranks << " ranks";
  }
}

// Whose updates are not the serial run's; to the last bit what the same ranks leave as threads.
class AsynchronousProcesses : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Schedules, AsynchronousProcesses,
                         ::testing::Values(Case{"pipedream"}, Case{"2bw"}));

TEST_P(AsynchronousProcesses, LeaveWhatThreadsLeave) {
  for (const int ranks : conformance::rank_counts({2, 3})) {
    const TrainConfig config = config_of_processes(ranks, GetParam());
    LaunchOptions threads = launch_options({.ranks = ranks});
    threads.backend = LaunchOptions::Backend::Threads;
    const RankLayout as_threads{.ranks = ranks, .options = threads};
    EXPECT_TRUE(same_steps(run_layout(as_threads, config, 3, parts_of(GetParam())),
                           run_layout({.ranks = ranks}, config, 3, parts_of(GetParam())), 0))
        << ranks << " ranks";
  }
}

}  // namespace
}  // namespace aisc
