// Conformance of every backend: many operations in flight, groups split from groups, statistics.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/conformance.h"
#include "tests/support/shared_counter.h"

namespace aisc::conformance {
namespace {

class Groups : public EachBackend {};

// One of each collective and a ring of messages, all issued before the first wait.
class SevenCalls {
 public:
  SevenCalls(Communicator& comm, Device& device, std::int64_t count)
      : comm_(comm),
        next_((comm.rank() + 1) % comm.size()),
        previous_((comm.rank() + comm.size() - 1) % comm.size()),
        sum_(count, DType::F32, device, summand(ReduceOp::Sum, comm.rank())),
        maxima_(comm.size() * count, DType::I64, device, summand(ReduceOp::Max, comm.rank())),
        maximum_(count, DType::I64, device),
        mine_(count, DType::U8, device, sent_by(comm.rank())),
        all_(comm.size() * count, DType::U8, device),
        root_(count, DType::BF16, device, sent_by(comm.rank())),
        to_all_(comm.size() * count, DType::F16, device, sent_by(comm.rank())),
        from_all_(comm.size() * count, DType::F16, device),
        received_(count, DType::U8, device) {}

  std::vector<Work> issue() {
    std::vector<Work> works;
    works.push_back(comm_.recv(received_.view(), previous_));
    works.push_back(comm_.all_reduce(sum_.view()));
    works.push_back(comm_.reduce_scatter(maxima_.view(), maximum_.view(), ReduceOp::Max));
    works.push_back(comm_.all_gather(mine_.view(), all_.view()));
    works.push_back(comm_.send(mine_.view(), next_));
    works.push_back(comm_.broadcast(root_.view(), comm_.size() - 1));
    works.push_back(comm_.all_to_all(to_all_.view(), from_all_.view()));
    return works;
  }

  // Alone.
  void run() {
    for (Work& work : issue()) work.wait();
    expect();
  }

  void expect() const {
    const int me = comm_.rank(), size = comm_.size();
    const std::int64_t count = mine_.view().count();
    const std::string where = " on " + comm_.name();
    received_.expect(sent_by(previous_), "recv" + where);
    sum_.expect(reduced(ReduceOp::Sum, size), "all_reduce" + where);
    maximum_.expect(reduced(ReduceOp::Max, size, me * count), "reduce_scatter" + where);
    all_.expect(chunks_of_all(count), "all_gather" + where);
    root_.expect(sent_by(size - 1), "broadcast" + where);
    from_all_.expect(chunks_of_all(count, me * count), "all_to_all" + where);
  }

 private:
  Communicator& comm_;
  const int next_, previous_;
  const Guarded sum_, maxima_, maximum_, mine_, all_, root_, to_all_, from_all_, received_;
};

// Those of each of these communicators, all at once.
class CallsInFlight {
 public:
  CallsInFlight(const std::vector<Communicator*>& comms, Device& device, std::int64_t count) {
    for (Communicator* comm : comms) calls_.emplace_back(*comm, device, count++);
    for (SevenCalls& seven : calls_)
      for (Work& work : seven.issue()) works_.push_back(std::move(work));
  }
  // Waits for them backwards, where a rank begins `shift` before the last.
  void wait_and_expect(std::size_t shift = 0) {
    const std::size_t n = works_.size();
    for (std::size_t i = 0; i < n; ++i) works_[(2 * n - 1 - i - shift % n) % n].wait();
    for (const SevenCalls& seven : calls_) seven.expect();
  }

 private:
  std::deque<SevenCalls> calls_;
  std::vector<Work> works_;
};

TEST_P(Groups, SevenDifferentCallsInFlight) {
  run([](Rank rank) {
    for (const std::int64_t count : {1, 1000}) {
      SevenCalls calls(rank.world, rank.device, count);
      std::vector<Work> works = calls.issue();
      for (const int i : {3, 6, 0, 5, 1, 4, 2}) works[static_cast<std::size_t>(i)].wait();
      calls.expect();
    }
  });
}

TEST_P(Groups, ManyCallsInFlightWaitedForBackwards) {
  run([](Rank rank) {
    CallsInFlight(std::vector<Communicator*>(6, &rank.world), rank.device, 100).wait_and_expect();
  });
}

TEST_P(Groups, SplitByParityOrderedByKey) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    const int members = (size + 1 - me % 2) / 2;  // ranks of this parity
    const auto forward = rank.world.split(me % 2, me, "forward");
    const auto backward = rank.world.split(me % 2, -me, "backward");
    EXPECT_EQ(forward->name(), "forward");
    EXPECT_EQ(forward->size(), members);
    EXPECT_EQ(forward->rank(), me / 2);
    EXPECT_EQ(backward->size(), members);
    EXPECT_EQ(backward->rank(), members - 1 - me / 2);
    // All at once, in an order of waiting that differs between ranks.
    CallsInFlight({&rank.world, forward.get(), backward.get()}, rank.device, 200)
        .wait_and_expect(static_cast<std::size_t>(me) * 7);
  });
}

TEST_P(Groups, EqualKeysAreOrderedByRank) {
  run([](Rank rank) {
    const auto same = rank.world.split(5, 0, "same");
    EXPECT_EQ(same->rank(), rank.world.rank());
    EXPECT_EQ(same->size(), rank.world.size());
  });
}

TEST_P(Groups, NegativeColorTakesNoPart) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    const auto rest = rank.world.split(me == 0 ? -1 : 3, me, "rest");
    ASSERT_EQ(rest == nullptr, me == 0);
    if (rest) {
      EXPECT_EQ(rest->size(), size - 1);
      EXPECT_EQ(rest->rank(), me - 1);
      SevenCalls(*rest, rank.device, 10).run();
    }
    rank.world.barrier();
  });
}

TEST_P(Groups, SplitOfASplit) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    const auto halves = rank.world.split(me < (size + 1) / 2 ? 0 : 1, me, "half");
    const auto pairs = halves->split(halves->rank() / 2, 0, "pair");
    EXPECT_EQ(pairs->size(), std::min(2, halves->size() - halves->rank() / 2 * 2));
    SevenCalls(*pairs, rank.device, 10).run();
  });
}

TEST_P(Groups, MessagesAndCollectivesOfTwoGroupsDoNotMix) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    const int next = (me + 1) % size, previous = (me + size - 1) % size;
    const auto other = rank.world.split(0, me, "other");
    const Guarded a(10, DType::F32, rank.device, sent_by(me));
    const Guarded b(10, DType::F32, rank.device, sent_by(me, 1));
    const Guarded from_world(10, DType::F32, rank.device), from_other(10, DType::F32, rank.device);
    Work recv_other = other->recv(from_other.view(), previous);
    Work recv_world = rank.world.recv(from_world.view(), previous);
    Work send_world = rank.world.send(a.view(), next);
    Work send_other = other->send(b.view(), next);
    for (Work* work : {&recv_other, &recv_world, &send_world, &send_other}) work->wait();
    from_world.expect(sent_by(previous), "recv on world");
    from_other.expect(sent_by(previous, 1), "recv on other");
  });
}

// Collectives by plan and others, in one order on one communicator.
TEST_P(Groups, SomeCollectivesByPlanAndSomeNot) {
  run([](Rank rank) {
    PlanTable plans;
    plans[CommOp::AllReduce] = tree_all_reduce;
    plans[CommOp::AllGather] = ring_all_gather;
    rank.world.use_plans(plans);
    const auto part = rank.world.split(0, 0, "part");  // inherits them
    CallsInFlight({part.get(), &rank.world, part.get()}, rank.device, 1000).wait_and_expect();
    EXPECT_GT(part->stats().steps, 0);
  });
}

// The same on every backend, whatever carries the bytes.
TEST_P(Groups, StatisticsCountCallsAndPayload) {
  run([](Rank rank) {
    const int size = rank.world.size();
    const CommStats before = rank.world.stats();
    SevenCalls(rank.world, rank.device, 10).run();
    rank.world.barrier();
    const CommStats stats = rank.world.stats();
    const auto expect = [&](CommOp op, std::int64_t bytes) {
      EXPECT_EQ(stats[op].calls - before[op].calls, 1) << aisc::name_of(op);
      EXPECT_EQ(stats[op].payload_bytes - before[op].payload_bytes, bytes) << aisc::name_of(op);
    };
    expect(CommOp::AllReduce, 10 * 4);
    expect(CommOp::ReduceScatter, size * 10 * 8);
    expect(CommOp::AllGather, 10);
    expect(CommOp::Broadcast, 10 * 2);
    expect(CommOp::AllToAll, size * 10 * 2);
    expect(CommOp::Send, 10);
    expect(CommOp::Recv, 10);
    expect(CommOp::Barrier, 0);
  });
}

INSTANTIATE_TEST_SUITE_P(EachBackend, Groups, ::testing::ValuesIn(backends()), name_of_case);

// What goes on beside the callers. Under LateComm nothing does; and what shares network cards waits
// until all ranks wait, since only then it is known what was sent before.
class Progress : public EachBackend {};

// Looks away from the communicator until `count` ranks are there, or for ever so long.
bool computes_until(const SharedCounter& arrived, int count) {
  for (int i = 0; i < 10'000 && arrived.value() < count; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return arrived.value() >= count;
}

// Who has its result computes on; the others have theirs all the same.
TEST_P(Progress, RankThatIsDoneHoldsNobodyUp) {
  run([](Rank rank) {
    SharedCounter arrived(rank);
    for (int round = 1; round <= 3; ++round) {
      SevenCalls calls(rank.world, rank.device, 10'000);
      for (Work& work : calls.issue()) work.wait();
      rank.world.barrier();
      ++arrived;
      EXPECT_TRUE(computes_until(arrived, round * rank.world.size()));
    }
  });
}

// Operations go on while the rank that asked for them computes.
TEST_P(Progress, RankThatComputesHoldsNobodyUp) {
  run([](Rank rank) {
    SharedCounter arrived(rank);
    SevenCalls calls(rank.world, rank.device, 10'000);
    std::vector<Work> works = calls.issue();
    EXPECT_TRUE(rank.world.rank() != 0 || computes_until(arrived, rank.world.size() - 1));
    for (Work& work : works) work.wait();
    ++arrived;
    calls.expect();
  });
}

INSTANTIATE_TEST_SUITE_P(
    EachBackend, Progress,
    ::testing::ValuesIn(backends({Backend::Plain, Backend::Plans, Backend::TinyChunks,
                                  Backend::Delayed, Backend::Virtual, Backend::Mpi,
                                  Backend::MpiUnchecked, Backend::MpiTiny, Backend::MpiPlans})),
    name_of_case);

TEST(SelfCommunicator, DoesWhatAGroupOfOneRankDoes) {
  CpuDevice device;
  const auto self = make_self_communicator("self");
  const auto child = self->split(0, 0, "child");
  for (Communicator* comm : {self.get(), child.get()}) {
    SevenCalls(*comm, device, 10).run();
    comm->barrier();
  }
}

}  // namespace
}  // namespace aisc::conformance
