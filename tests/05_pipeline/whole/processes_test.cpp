// Stages that are processes: under mpirun (05_pipeline/CMakeLists.txt) as many as there are, else
// threads, of which the others are tests.
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "05_pipeline/pipelined.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/conformance.h"
#include "tests/support/run_layout.h"

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
  TrainConfig config;
  config.model = odd_config(DType::F64, 0.1);
  config.model.layers = pp * (c.schedule == "zb-v" ? 2 : c.chunks);
  config.gradient_dtype = DType::F64;
  config.micro_batches = 2 * pp;
  config.batch = 2 * config.micro_batches;
  config.pp = pp;
  config.steps = 10;
  config.warmup_steps = 2;
  config.learning_rate = 3e-3;
  config.clip = c.schedule == "pipedream" ? 0 : 0.05;
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
    TrainConfig alone = config;
    alone.pp = 1;
    EXPECT_TRUE(same_steps(run_layout({.ranks = 1}, alone, 2),
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
