// What becomes of ranks whose peer fails, returns, or comes late: each ends with an error that says
// so, at once where that can be known and else within the timeout.
#include "tests/comm/faults.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

namespace aisc {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StrEq;

// The failure of the ranks that wait, for one that idles meanwhile. No process is told of
// another's: there it idles for longer than they wait, and not so long that it is given up.
class Failure {
 public:
  explicit Failure(conformance::Backend backend)
      : is_told_(!conformance::is_of_processes(backend)) {}

  // Runs `call`, which fails.
  template <class Call>
  void tell(Call&& call) {
    try {
      call();
    } catch (const Error&) {
      happened_ = true;
      throw;
    }
  }
  void idle() const {
    const std::chrono::duration<double> most(is_told_ ? 20 : 1.5 * kShortTimeoutOfProcesses);
    const auto begin = std::chrono::steady_clock::now();
    while (!happened_ && std::chrono::steady_clock::now() - begin < most)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(happened_ || !is_told_) << "nobody has failed";
  }

 private:
  const bool is_told_;
  std::atomic<bool> happened_ = false;
};

TEST_P(Faults, RankThatThrowsAbortsItsPeersAtOnce) {
  if (!can_run(4)) GTEST_SKIP() << kOtherSize;
  const Outcome outcome = run(4, [](Rank rank) {
    if (rank.world.rank() == 1) fail("the corpus is empty");
    rank.world.all_reduce(tensor(rank, 16)).wait();
  });
  EXPECT_EQ(outcome.launch, "rank 1: the corpus is empty");
  expect_all_but(1, outcome, StrEq("rank 1 failed: the corpus is empty"));
}

TEST_P(Faults, RankThatThrowsAbortsReceivesBarriersAndSplits) {
  if (!can_run(4)) GTEST_SKIP() << kOtherSize;
  const Outcome outcome = run(4, [](Rank rank) {
    const int me = rank.world.rank();
    const auto side = rank.world.split(0, 0, "side");
    if (me == 0) side->recv(tensor(rank, 3), 3).wait();
    if (me == 1) rank.world.barrier();
    if (me == 2) (void)side->split(0, 0, "never");
    fail("the corpus is empty");
  });
  EXPECT_EQ(outcome.launch, "rank 3: the corpus is empty");
  expect_all_but(3, outcome, StrEq("rank 3 failed: the corpus is empty"));
}

// It does not wait for its operations, though rank 0 never waits and so never meets them.
TEST_P(Faults, RankThatLeavesOperationsBehindAbortsItsPeersAtOnce) {
  if (!can_run(2)) GTEST_SKIP() << kOtherSize;
  const Outcome outcome = run(2, [](Rank rank) {
    const int me = rank.world.rank();
    Work recv = rank.world.recv(tensor(rank, 3), 1 - me);
    if (me == 1) fail("the corpus is empty");
    for (int i = 0; i < 10'000 && !recv.done(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(recv.done());
    recv.wait();
  });
  EXPECT_EQ(outcome.launch, "rank 1: the corpus is empty");
  expect_on(0, outcome,
            StrEq("world: rank 1 left by an exception while its recv(3 x F32) from 0 was under "
                  "way"));
}

// Buffers are freed right after their Work was dropped, while peers may still be reading them: the
// address and thread sanitizers see it.
TEST_P(Faults, WorkDroppedByAnExceptionNeitherBlocksNorTouchesFreedMemory) {
  if (!can_run(3)) GTEST_SKIP() << kOtherSize;
  for (int guilty = 0; guilty < 12; ++guilty) {
    const Outcome outcome = run(3, [&](Rank rank) {
      const int me = rank.world.rank();
      CpuDevice own;
      std::vector<float> in(50'000, 1), out(150'000), x(100'000), got(1000);
      const auto view = [&](std::vector<float>& memory) {
        return View(memory.data(), {std::ssize(memory)}, DType::F32, own);
      };
      Work recv = rank.world.recv(view(got), (me + 1) % 3);  // which nobody sends
      Work gathered = rank.world.all_gather(view(in), view(out));
      Work sum = rank.world.all_reduce(view(x));
      if (me == guilty % 3) fail("the corpus is empty");
      sum.wait();
      recv.wait();
    });
    ASSERT_EQ(outcome.launch, "rank " + std::to_string(guilty % 3) + ": the corpus is empty");
  }
}

TEST_P(Faults, UnsolvedExerciseIsThrownAsItIs) {
  if (!can_run(2)) GTEST_SKIP() << kOtherSize;
  const NotImplemented unsolved("09.1", "all_reduce.cpp", 7);
  try {
    launch(conformance::options_of(GetParam(), 2), [&](Rank rank) {
      if (rank.world.rank() == 1) throw unsolved;
      rank.world.barrier();
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const NotImplemented& thrown) {
    EXPECT_STREQ(thrown.what(), unsolved.what());
  }
}

TEST_P(Faults, OtherExceptionsAreThrownAsErrorsWithTheirRank) {
  if (!can_run(2)) GTEST_SKIP() << kOtherSize;
  const Outcome outcome = run(2, [](Rank rank) {
    if (rank.world.rank() == 1) throw std::out_of_range("no such token");
    rank.world.barrier();
  });
  EXPECT_EQ(outcome.launch, "rank 1: no such token");
  expect_on(0, outcome, StrEq("rank 1 failed: no such token"));
}

TEST_P(Faults, RankThatReturnsEarlyIsNamedAtOnce) {
  if (!can_run(3)) GTEST_SKIP() << kOtherSize;
  const Outcome reduce = run(3, [](Rank rank) {
    if (rank.world.rank() != 2) rank.world.all_reduce(tensor(rank, 16)).wait();
  });
  expect_all_but(
      2, reduce,
      says({"world: rank 2 has not arrived at all_reduce(16 x F32) #", "it has returned"}));
  const Outcome split = run(3, [](Rank rank) {
    if (rank.world.rank() != 2) (void)rank.world.split(0, 0, "dp");
  });
  expect_all_but(2, split, says({"world: rank 2 has not arrived at split", "it has returned"}));
  const Outcome recv = run(3, [](Rank rank) {
    if (rank.world.rank() == 0) rank.world.recv(tensor(rank, 3), 1).wait();
  });
  expect_on(0, recv, says({"world: rank 1 has not", "it has returned", "recv(3 x F32) from 1"}));
}

// Threads see a cycle at once, processes at the timeout.
TEST_P(Faults, CycleOfRanksThatWaitForEachOtherIsNamed) {
  if (!can_run(4)) GTEST_SKIP() << kOtherSize;
  const Outcome outcome = run_in_a_cycle(4, [](Rank rank) {
    const int me = rank.world.rank();
    if (me == 3) return;  // has no part in it
    rank.world.recv(tensor(rank, 3), (me + 1) % 3).wait();
    rank.world.send(tensor(rank, 3), (me + 2) % 3).wait();
  });
  expect_all_but(3, outcome,
                 says({"world: ", "cycle", "rank 0 in recv(3 x F32) from 1",
                       "rank 1 in recv(3 x F32) from 2", "rank 2 in recv(3 x F32) from 0"}));
}

TEST_P(Faults, CycleOfACollectiveAndAMessageIsNamed) {
  if (!can_run(2)) GTEST_SKIP() << kOtherSize;
  const Outcome outcome = run_in_a_cycle(2, [](Rank rank) {
    if (rank.world.rank() == 0) {
      rank.world.barrier();
      rank.world.send(tensor(rank, 3), 1).wait();
    } else {
      rank.world.recv(tensor(rank, 3), 0).wait();
      rank.world.barrier();
    }
  });
  expect_all(outcome, says({"cycle", "rank 0 in barrier", "rank 1 in recv(3 x F32) from 0"}));
}

// Who polls does not poll for ever: the operation is done, with an error.
TEST_P(Faults, WorkIsDoneAfterAFailure) {
  if (!can_run(2)) GTEST_SKIP() << kOtherSize;
  const Outcome outcome = run(2, [](Rank rank) {
    if (rank.world.rank() == 1) fail("the corpus is empty");
    Work recv = rank.world.recv(tensor(rank, 3), 1);
    while (!recv.done()) {
      if (rank.clock.is_virtual()) rank.clock.advance(1);
      std::this_thread::yield();
    }
    recv.wait();
  });
  expect_on(0, outcome, StrEq("rank 1 failed: the corpus is empty"));
}

// Rank 0 waits for 1, which waits for 2, which is the one that does not come.
TEST_P(Faults, RankAtTheEndOfAChainIsNamed) {
  if (!can_run(3)) GTEST_SKIP() << kOtherSize;
  const Outcome outcome = run(3, [](Rank rank) {
    const int me = rank.world.rank();
    if (me < 2) rank.world.recv(tensor(rank, 3), me + 1).wait();
  });
  expect_all_but(
      2, outcome,
      says({"world: rank 2 has not", "it has returned", "rank 1's recv(3 x F32) from 2"}));
}

TEST_P(Faults, EightMissingRanksAreNamedAndTheOthersCounted) {
  if (!can_run(12)) GTEST_SKIP() << kOtherSize;
  const Outcome outcome = run(12, [](Rank rank) {
    if (rank.world.rank() == 0) rank.world.gather(tensor(rank, 1), tensor(rank, 12), 0).wait();
  });
  expect_on(0, outcome,
            AllOf(HasSubstr("rank 1 has not arrived at gather(1 x F32, root 0)"),
                  HasSubstr("rank 8 has not"), ::testing::Not(HasSubstr("rank 9 has not")),
                  HasSubstr("3 more are missing")));
}

TEST_P(Faults, AfterAnErrorEveryCallOfTheseRanksFails) {
  if (!can_run(2)) GTEST_SKIP() << kOtherSize;
  const Outcome outcome = run(2, [](Rank rank) {
    const auto side = rank.world.split(0, 0, "side");
    if (rank.world.rank() == 1) fail("the corpus is empty");
    EXPECT_THROW(rank.world.barrier(), Error);
    EXPECT_THROW(rank.world.barrier(), Error);
    EXPECT_THROW(side->all_reduce(tensor(rank, 3)).wait(), Error);
    EXPECT_THROW((void)side->split(0, 0, "never"), Error);
  });
  EXPECT_EQ(outcome.launch, "rank 1: the corpus is empty");
}

TEST_P(Faults, ErrorOfADroppedWorkIsThrownByTheNextCall) {
  if (!can_run(2)) GTEST_SKIP() << kOtherSize;
  const Outcome outcome = run(2, [](Rank rank) {
    if (rank.world.rank() == 1) return;
    { const Work dropped = rank.world.recv(tensor(rank, 3), 1); }
    rank.world.barrier();
  });
  expect_on(0, outcome, HasSubstr("recv(3 x F32) from 1"));
}

TEST_P(Faults, ErrorOfTheLastWorkThatWasDroppedIsThrownByLaunch) {
  if (!can_run(2)) GTEST_SKIP() << kOtherSize;
  const Outcome outcome = run(2, [](Rank rank) {
    if (rank.world.rank() == 0) const Work dropped = rank.world.recv(tensor(rank, 3), 1);
  });
  EXPECT_THAT(outcome.launch, HasSubstr("recv(3 x F32) from 1"));
}

INSTANTIATE_TEST_SUITE_P(EachBackend, Faults, ::testing::ValuesIn(fault_backends()),
                         conformance::name_of_case);

// Each of these waits for the timeout.
class Timeouts : public Faults {};

TEST_P(Timeouts, RankThatIsLateIsNamedWithItsLastCall) {
  if (!can_run(4)) GTEST_SKIP() << kOtherSize;
  Failure failure(GetParam());
  const Outcome outcome = run_impatiently(4, [&](Rank rank) {
    const int me = rank.world.rank();
    for (int i = 0; i < 12; ++i) rank.world.barrier();
    if (me == 3) rank.world.send(tensor(rank, 3), 1).wait();
    if (me == 1) {
      rank.world.recv(tensor(rank, 3), 3).wait();
      return failure.idle();
    }
    failure.tell([&] { rank.world.barrier(); });
  });
  expect_all_but(1, outcome,
                 says({"world: rank 1 has not arrived at barrier #1", " after ", " s; ",
                       "its last call was recv(3 x F32) from 3"}));
}

TEST_P(Timeouts, RankThatDoesNotSendInTimeIsNamed) {
  if (!can_run(2)) GTEST_SKIP() << kOtherSize;
  const auto outcome = [&](const std::function<void(Rank&)>& wait) {
    Failure failure(GetParam());
    return run_impatiently(2, [&](Rank rank) {
      rank.world.barrier();
      if (rank.world.rank() == 1) return failure.idle();
      failure.tell([&] { wait(rank); });
    });
  };
  const Outcome received = outcome([](Rank& rank) { rank.world.recv(tensor(rank, 3), 1).wait(); });
  const Outcome received_any = outcome([](Rank& rank) {
    std::vector<Work> works;
    works.push_back(rank.world.recv(tensor(rank, 3), 1));
    works.push_back(rank.world.recv(tensor(rank, 3), 1));
    (void)wait_any(works);
  });
  for (const Outcome& result : {received, received_any})
    expect_on(0, result,
              says({"world: rank 1 has not", "recv(3 x F32) from 1", " after ",
                    "its last call was barrier"}));
}

// Messages so large that nobody sends them before they are received.
TEST_P(Timeouts, CycleBesideARankThatRunsIsNamedWithinTheTimeout) {
  if (!can_run(3)) GTEST_SKIP() << kOtherSize;
  Failure failure(GetParam());
  const Outcome outcome = run_impatiently(3, [&](Rank rank) {
    const int me = rank.world.rank();
    if (me == 2) return failure.idle();
    failure.tell([&] { rank.world.send(tensor(rank, 1'000'000), 1 - me).wait(); });
  });
  expect_all_but(2, outcome,
                 says({"world: ", "cycle", " after ", "rank 0 in send(1000000 x F32) to 1",
                       "rank 1 in send(1000000 x F32) to 0"}));
}

TEST_P(Timeouts, HoldForOperationsInLineBehindOthers) {
  if (!can_run(2)) GTEST_SKIP() << kOtherSize;
  Failure failure(GetParam());
  const Outcome outcome = run_impatiently(2, [&](Rank rank) {
    if (rank.world.rank() == 1) return failure.idle();
    Work first = rank.world.all_reduce(tensor(rank, 3));
    Work second = rank.world.all_reduce(tensor(rank, 4));
    failure.tell([&] { second.wait(); });
  });
  expect_on(
      0, outcome,
      says({"world: rank 1 has not arrived at all_reduce(", " after ", "it has called nothing"}));
}

INSTANTIATE_TEST_SUITE_P(EachBackend, Timeouts,
                         ::testing::ValuesIn(conformance::backends({conformance::Backend::Plain,
                                                                    conformance::Backend::Virtual,
                                                                    conformance::Backend::Mpi})),
                         conformance::name_of_case);

TEST(FaultsDeathTest, ThreadThatNeverReturnsEndsTheProcessWithTheFailure) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto stuck = [] {
    launch({.ranks = 3, .timeout_seconds = 0.3}, [](Rank rank) {
      if (rank.world.rank() == 0) fail("the corpus is empty");
      while (rank.world.rank() == 1) std::this_thread::sleep_for(std::chrono::hours(1));
      rank.world.barrier();
    });
  };
  EXPECT_EXIT(stuck(), ::testing::ExitedWithCode(70), "rank 0: the corpus is empty");
}

}  // namespace
}  // namespace aisc
