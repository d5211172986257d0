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

void PrintTo(const PipelineChoice& choice, std::ostream* out) {
  *out << choice.schedule << " again " << static_cast<int>(choice.again);
}

namespace {

// Of `pp` stages on as many ranks.
TrainConfig config_of_processes(int pp, const PipelineChoice& c) {
  TrainConfig config =
      odd_training(pp, 0, 4 * pp, 2 * pp, pp * (c.schedule == "zb-v" ? 2 : c.chunks));
  if (c.schedule == "pipedream") config.clip = 0;
  return config;
}

class SynchronousProcesses : public ::testing::TestWithParam<PipelineChoice> {};
INSTANTIATE_TEST_SUITE_P(Schedules, SynchronousProcesses,
                         ::testing::Values(PipelineChoice{"gpipe"}, PipelineChoice{"1f1b"},
                                           PipelineChoice{"interleaved", 2},
                                           PipelineChoice{"zb-h1"}, PipelineChoice{"zb-h2"},
                                           PipelineChoice{"zb-v"},
                                           PipelineChoice{"1f1b", 1, Again::Early}));

TEST_P(SynchronousProcesses, LeaveWhatOneRankLeaves) {
  for (const int ranks : conformance::rank_counts({2, 3})) {
    const TrainConfig config = config_of_processes(ranks, GetParam());
    EXPECT_TRUE(same_steps(serial_steps(config, 2),
                           run_layout({.ranks = ranks}, config, 2, pipelined(GetParam()))))
        << ranks << " ranks";
  }
}

// Whose updates are not the serial run's; to the last bit what the same ranks leave as threads.
class AsynchronousProcesses : public ::testing::TestWithParam<PipelineChoice> {};
INSTANTIATE_TEST_SUITE_P(Schedules, AsynchronousProcesses,
                         ::testing::Values(PipelineChoice{"pipedream"}, PipelineChoice{"2bw"}));

TEST_P(AsynchronousProcesses, LeaveWhatThreadsLeave) {
  for (const int ranks : conformance::rank_counts({2, 3})) {
    const TrainConfig config = config_of_processes(ranks, GetParam());
    LaunchOptions threads = launch_options({.ranks = ranks});
    threads.backend = LaunchOptions::Backend::Threads;
    const RankLayout as_threads{.ranks = ranks, .options = threads};
    EXPECT_TRUE(same_steps(run_layout(as_threads, config, 3, pipelined(GetParam())),
                           run_layout({.ranks = ranks}, config, 3, pipelined(GetParam())), 0))
        << ranks << " ranks";
  }
}

}  // namespace
}  // namespace aisc
