// Ranks that are processes: what launch() does there beside what every backend does. Under mpirun
// each process checks its own rank.
#include "common/comm/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/conformance.h"
#include "tests/support/message_of.h"

namespace aisc {
namespace {

using conformance::Backend;
using ::testing::HasSubstr;

void return_at_once(Rank) {}

class OnProcesses : public ::testing::TestWithParam<Backend> {
 protected:
  static int processes() { return started_processes()->size; }
  LaunchOptions options() const { return conformance::options_of(GetParam(), processes()); }
};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OnProcesses);  // without mpirun

TEST_P(OnProcesses, EachIsOneRank) {
  const Processes started = *started_processes();
  int runs = 0;
  launch(options(), [&](Rank rank) {
    ++runs;
    EXPECT_EQ(rank.world.rank(), started.rank);
    EXPECT_EQ(rank.world.size(), started.size);
    EXPECT_EQ(rank.world.name(), "world");
  });
  EXPECT_EQ(runs, 1);
}

TEST_P(OnProcesses, ZeroRanksAreAsManyAsThereAre) {
  for (const auto backend : {LaunchOptions::Backend::Auto, LaunchOptions::Backend::Mpi})
    launch({.ranks = 0, .backend = backend},
           [&](Rank rank) { EXPECT_EQ(rank.world.size(), processes()); });
}

TEST_P(OnProcesses, AnotherNumberOfRanksIsRefused) {
  const int more = processes() + 1;
  EXPECT_EQ(message_of([&] { launch({.ranks = more}, return_at_once); }),
            "launch: " + std::to_string(more) + " ranks asked for, " + std::to_string(processes()) +
                " processes were started");
}

// What needs no other process is done here: serial runs, and whatever happens in virtual time.
TEST_P(OnProcesses, ThreadsAreThisProcesssOwn) {
  const int size = processes() + 1;
  const auto expect_sum = [&](Rank rank) {
    const Tensor x = Tensor::zeros({4}, DType::I32, rank.device);
    std::fill_n(x.data<std::int32_t>(), 4, 1);
    rank.world.all_reduce(x).wait();
    EXPECT_EQ(rank.world.size(), size);
    EXPECT_EQ(x.values<std::int32_t>()[3], size);
  };
  launch({.ranks = size, .backend = LaunchOptions::Backend::Threads}, expect_sum);
  launch({.ranks = size, .network = Network{}}, expect_sum);
}

TEST_P(OnProcesses, FurtherLaunchesFollowAFailedOne) {
  for (int round = 0; round < 3; ++round) {
    const int guilty = round % processes();
    EXPECT_EQ(message_of([&] {
                launch(options(), [&](Rank rank) {
                  if (rank.world.rank() == guilty) fail("the corpus is empty");
                  rank.world.barrier();
                  rank.world.barrier();
                });
              }),
              processes() == 1 ? "the corpus is empty"
                               : "rank " + std::to_string(guilty) + ": the corpus is empty");
    launch(options(), [](Rank rank) { rank.world.barrier(); });
  }
}

TEST_P(OnProcesses, TracesNameTheCall) {
  LaunchOptions with_trace = options();
  with_trace.record_trace = true;
  launch(with_trace, [&](Rank rank) {
    rank.world.all_reduce(Tensor::zeros({16}, DType::F32, rank.device)).wait();
    const std::vector<TraceEvent> events = rank.trace.events();
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events[0].name, "all_reduce(16 x F32)");
    EXPECT_EQ(events[0].part, "world");
  });
}

INSTANTIATE_TEST_SUITE_P(EachBackend, OnProcesses,
                         ::testing::ValuesIn(conformance::backends({Backend::Mpi,
                                                                    Backend::MpiUnchecked})),
                         conformance::name_of_case);

TEST(Processes, AreNoneWhereTheProgramWasStartedAlone) {
  EXPECT_FALSE(started_processes().has_value());
  EXPECT_THAT(message_of([] {
                launch({.ranks = 2, .backend = LaunchOptions::Backend::Mpi}, return_at_once);
              }),
              HasSubstr("launch: "));
  launch({.ranks = 0}, [](Rank rank) { EXPECT_EQ(rank.world.size(), 1); });
}

TEST(Processes, AreStartedByMpirun) {
  if (!has_mpi()) GTEST_SKIP() << "built without MPI";
  const std::vector<std::string> command = mpirun_command(3, {"train", "--steps", "2 or 3"});
  ASSERT_GE(command.size(), 6U);
  EXPECT_THAT(std::vector(command.end() - 5, command.end()),
              ::testing::ElementsAre("-n", "3", "train", "--steps", "2 or 3"));
}

}  // namespace
}  // namespace aisc
