// Ranks that do not ask for the same: every one ends with an error that names communicator, ranks,
// and what each of them called.
#include "tests/comm/faults.h"

#include <cstdint>

namespace aisc {
namespace {

using conformance::Backend;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Mismatches : public Faults {
 protected:
  using Calls = std::function<void(Communicator&, Rank&)>;

  // On "dp", ranks 0 and 1 make the `right` calls and rank 2 the `wrong` ones, of which an error
  // says this.
  void expect_named(const Calls& right, const std::string& right_text, const Calls& wrong,
                    const std::string& wrong_text) const {
    const Outcome outcome = run(3, [&](Rank rank) {
      const auto dp = rank.world.split(0, 0, "dp");
      (rank.world.rank() == 2 ? wrong : right)(*dp, rank);
    });
    // Plans find out from the first message that meets another, whoever sends it to whom. Of
    // processes, a rank whose message never meets another may be named as one that waits in vain.
    if (is_of_processes(GetParam()))
      expect_found(outcome, 2, says({"dp: ", right_text, wrong_text}));
    else if (GetParam() == Backend::Plans || is_virtual(GetParam()) || is_nccl(GetParam()))
      expect_found(outcome, 2, says({"dp: ", "rank 2 ", right_text, wrong_text}));
    else
      expect_found(
          outcome, 2,
          HasSubstr("dp: rank 2 called " + wrong_text + " where rank 0 called " + right_text));
    EXPECT_THAT(outcome.launch, HasSubstr("rank 2"));
  }

  // The run ended with a message like this, and all ranks but `guilty` did (-1: all). Of processes,
  // a rank that only sends may be over by then: its data leaves it before it is received.
  void expect_found(const Outcome& outcome, int guilty, const Message& message) const {
    EXPECT_THAT(outcome.launch, AllOf(::testing::StartsWith("rank "), message));
    expect_all_but(guilty, outcome,
                   is_of_processes(GetParam()) ? Message(::testing::AnyOf("", message)) : message);
  }

  static Calls all_reduce(std::int64_t count, DType dtype = DType::F32,
                          ReduceOp op = ReduceOp::Sum) {
    return [=](Communicator& c, Rank& r) { c.all_reduce(tensor(r, count, dtype), op).wait(); };
  }
  static Calls all_gather(std::int64_t count) {
    return [=](Communicator& c, Rank& r) {
      c.all_gather(tensor(r, count), tensor(r, c.size() * count)).wait();
    };
  }
  static Calls broadcast(int root) {
    return [=](Communicator& c, Rank& r) { c.broadcast(tensor(r, 4), root).wait(); };
  }
  static Calls both(const Calls& first, const Calls& second) {
    return [=](Communicator& c, Rank& r) {
      first(c, r);
      second(c, r);
    };
  }
};

TEST_P(Mismatches, OfOperationsAreNamed) {
  if (!can_run(3)) GTEST_SKIP() << kOtherSize;
  expect_named(all_reduce(16), "all_reduce(16 x F32)", all_gather(8), "all_gather(8 x F32)");
}

TEST_P(Mismatches, OfCountsAreNamed) {
  if (!can_run(3)) GTEST_SKIP() << kOtherSize;
  expect_named(all_reduce(16), "all_reduce(16 x F32)", all_reduce(17), "all_reduce(17 x F32)");
  expect_named(all_reduce(16), "all_reduce(16 x F32)", all_reduce(0), "all_reduce(0 x F32)");
}

TEST_P(Mismatches, OfTypesAreNamed) {
  if (!can_run(3)) GTEST_SKIP() << kOtherSize;
  expect_named(all_reduce(100'000), "all_reduce(100000 x F32)", all_reduce(100'000, DType::I32),
               "all_reduce(100000 x I32)");
}

TEST_P(Mismatches, OfReductionsAreNamed) {
  if (!can_run(3)) GTEST_SKIP() << kOtherSize;
  expect_named(all_reduce(16), "all_reduce(16 x F32)", all_reduce(16, DType::F32, ReduceOp::Max),
               "all_reduce(16 x F32, max)");
}

TEST_P(Mismatches, OfRootsAreNamed) {
  if (!can_run(3)) GTEST_SKIP() << kOtherSize;
  expect_named(broadcast(0), "broadcast(4 x F32, root 0)", broadcast(1),
               "broadcast(4 x F32, root 1)");
}

TEST_P(Mismatches, OfOrderAreNamed) {
  if (!can_run(3)) GTEST_SKIP() << kOtherSize;
  expect_named(both(all_reduce(16), all_gather(8)), "all_reduce(16 x F32)",
               both(all_gather(8), all_reduce(16)), "all_gather(8 x F32)");
}

TEST_P(Mismatches, OfSplitsAndBarriersAreNamed) {
  if (!can_run(3)) GTEST_SKIP() << kOtherSize;
  const Calls barrier = [](Communicator& c, Rank&) { c.barrier(); };
  const Calls split = [](Communicator& c, Rank&) { (void)c.split(0, 0, "pp"); };
  expect_named(split, "split", barrier, "barrier");
  expect_named(barrier, "barrier", split, "split");
}

TEST_P(Mismatches, OfTheNamesOfASplitAreNamed) {
  if (!can_run(3)) GTEST_SKIP() << kOtherSize;
  const Outcome outcome =
      run(3, [](Rank rank) { (void)rank.world.split(0, 0, rank.world.rank() == 2 ? "pp" : "tp"); });
  if (is_of_processes(GetParam()))
    expect_found(outcome, -1, says({"world: ", "split(\"pp\")", "split(\"tp\")"}));
  else
    expect_found(outcome, -1,
                 HasSubstr("world: rank 2 called split(\"pp\") where rank 0 called split(\"tp\")"));
}

TEST_P(Mismatches, OfMessagesAreNamedOnBothSides) {
  if (!can_run(2)) GTEST_SKIP() << kOtherSize;
  const auto outcome = [&](std::int64_t count, DType dtype) {
    return run(2, [&](Rank rank) {
      if (rank.world.rank() == 0) rank.world.send(tensor(rank, 8), 1).wait();
      if (rank.world.rank() == 1) rank.world.recv(tensor(rank, count, dtype), 0).wait();
    });
  };
  expect_found(outcome(4, DType::F32), -1,
               HasSubstr("world: rank 1 called recv(4 x F32) from 0 where "
                         "rank 0 called send(8 x F32) to 1"));
  expect_found(outcome(8, DType::I32), -1,
               HasSubstr("world: rank 1 called recv(8 x I32) from 0 where "
                         "rank 0 called send(8 x F32) to 1"));
}

TEST_P(Mismatches, OfExchangesNameTheMessage) {
  if (!can_run(2)) GTEST_SKIP() << kOtherSize;
  const Outcome outcome = run(2, [](Rank rank) {
    const int me = rank.world.rank(), other = 1 - me;
    const Transfer transfers[] = {
        {.in = tensor(rank, 3), .to = other, .out = tensor(rank, 3), .from = other},
        {.in = tensor(rank, me + 5), .to = other, .out = tensor(rank, 5), .from = other}};
    rank.world.exchange(transfers).wait();
  });
  expect_found(outcome, -1,
               says({"world: ", "rank 0 called exchange", "5 x F32 from 1",
                     "rank 1 called exchange", "6 x F32 to 0"}));
}

TEST_P(Mismatches, OfTheTypesOfAllToAllVAreNamed) {
  if (!can_run(3)) GTEST_SKIP() << kOtherSize;
  const Outcome outcome = run(3, [](Rank rank) {
    const DType dtype = rank.world.rank() == 2 ? DType::I64 : DType::F32;
    const std::vector<std::int64_t> five{5, 5, 5};
    rank.world.all_to_all_v(tensor(rank, 15, dtype), five, tensor(rank, 15, dtype), five).wait();
  });
  expect_found(outcome, -1,
               says({"world: ", "rank 2 called all_to_all_v(I64)", "all_to_all_v(F32)"}));
}

TEST_P(Mismatches, OfAllToAllVNameBothCounts) {
  if (!can_run(3)) GTEST_SKIP() << kOtherSize;
  const Outcome outcome = run(3, [](Rank rank) {
    const bool wrong = rank.world.rank() == 0;
    const std::vector<std::int64_t> five{5, 5, 5}, seven{5, 5, 7};
    rank.world
        .all_to_all_v(tensor(rank, wrong ? 17 : 15), wrong ? seven : five, tensor(rank, 15), five)
        .wait();
  });
  expect_found(
      outcome, 1,  // which may have what it needs by then
      says({"world: ", "rank 0 called all_to_all_v", "rank 2 called all_to_all_v", "7", "5"}));
}

INSTANTIATE_TEST_SUITE_P(EachBackend, Mismatches, ::testing::ValuesIn(fault_backends()),
                         conformance::name_of_case);

}  // namespace
}  // namespace aisc
