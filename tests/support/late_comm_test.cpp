// The decorators: one that does everything late, so that a missing wait() is seen every time, and
// one that dawdles and shuffles.
#include "tests/support/late_comm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "common/comm/launch.h"
#include "tests/support/delayed_comm.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

void launch_late(int ranks, const std::function<void(Rank)>& body) {
  launch({.ranks = ranks, .internals = {.decorate = make_late_comm}}, body);
}

bool poisoned(const Tensor& x) {
  const auto* bytes = static_cast<const unsigned char*>(x.view().raw());
  return std::all_of(bytes, bytes + x.bytes(), [](unsigned char byte) { return byte == 0xFF; });
}

Tensor ones(Device& device) { return from_doubles({1, 1, 1}, {3}, DType::F32, device); }

TEST(LateComm, PoisonsOutputsUntilTheirOwnWait) {
  launch_late(2, [](Rank rank) {
    const int other = 1 - rank.world.rank();
    const Tensor sum = ones(rank.device), in = ones(rank.device), got = ones(rank.device);
    const Tensor all({6}, DType::F32, rank.device), moved({3}, DType::F32, rank.device);
    Work reduced = rank.world.all_reduce(sum), gathered = rank.world.all_gather(in, all);
    const Transfer transfers[] = {{.in = in, .to = other, .out = got, .from = other}};
    Work exchanged = rank.world.exchange(transfers);
    rank.world.barrier();  // all of it has started, on every rank
    while (!reduced.done()) std::this_thread::yield();
    EXPECT_TRUE(poisoned(sum));
    EXPECT_TRUE(poisoned(all));
    EXPECT_TRUE(poisoned(got));
    gathered.wait();
    EXPECT_EQ(to_doubles(all), std::vector<double>(6, 1));
    EXPECT_TRUE(poisoned(sum));
    reduced.wait();
    EXPECT_EQ(to_doubles(sum), std::vector<double>(3, 2));
    exchanged.wait();
    EXPECT_EQ(to_doubles(got), std::vector<double>(3, 1));
    EXPECT_EQ(to_doubles(in), std::vector<double>(3, 1));
  });
}

TEST(LateComm, DoesNothingBeforeAWait) {
  std::atomic<bool> sent = false, looked = false;
  launch_late(2, [&](Rank rank) {
    const Tensor x = ones(rank.device);
    if (rank.world.rank() == 0) {
      Work send = rank.world.send(x, 1);
      sent = true;
      while (!looked) std::this_thread::yield();
      send.wait();
    } else {
      while (!sent) std::this_thread::yield();
      Work recv = rank.world.recv(x, 0);
      for (int i = 0; i < 100; ++i) {
        EXPECT_FALSE(recv.done());
        std::this_thread::yield();
      }
      looked = true;
      recv.wait();
    }
  });
}

// Where the wrapped communicator starts operations at the call, no order of waiting deadlocks.
TEST(LateComm, StartsAllThatIsRecordedOfAllCommunicators) {
  launch_late(2, [](Rank rank) {
    const int me = rank.world.rank();
    const auto side = rank.world.split(0, me, "side");
    const Tensor a = ones(rank.device), b = ones(rank.device), got({3}, DType::F32, rank.device);
    std::vector<Work> works;
    works.push_back(rank.world.all_reduce(a));
    works.push_back(side->all_reduce(b));
    works.push_back(rank.world.send(ones(rank.device), 1 - me));
    works.push_back(rank.world.recv(got, 1 - me));
    if (me == 1) std::reverse(works.begin(), works.end());
    for (Work& work : works) work.wait();
    EXPECT_EQ(to_doubles(a), std::vector<double>(3, 2));
    EXPECT_EQ(to_doubles(b), std::vector<double>(3, 2));
    EXPECT_EQ(to_doubles(got), std::vector<double>(3, 1));
  });
}

TEST(LateComm, WhatIsSplitFromItIsLate) {
  launch_late(2, [](Rank rank) {
    const auto side = rank.world.split(0, 0, "side");
    const Tensor x = ones(rank.device);
    Work work = side->all_reduce(x);
    side->barrier();
    EXPECT_TRUE(poisoned(x));
    work.wait();
    EXPECT_EQ(to_doubles(x), std::vector<double>(3, 2));
    EXPECT_EQ(rank.world.split(-1, 0, "nobody"), nullptr);
  });
}

TEST(LateComm, SplitTakesItsPlaceAmongTheCollectives) {
  launch_late(2, [](Rank rank) {
    const Tensor x = ones(rank.device);
    Work work = rank.world.all_reduce(x);
    if (rank.world.rank() == 0) work.wait();
    const auto side = rank.world.split(0, 0, "side");
    work.wait();
    EXPECT_EQ(to_doubles(x), std::vector<double>(3, 2));
  });
}

TEST(LateComm, RunsThePlansItIsGiven) {
  launch_late(3, [](Rank rank) {
    PlanTable plans;
    plans[CommOp::AllReduce] = tree_all_reduce;
    rank.world.use_plans(plans);
    const Tensor x = ones(rank.device), y = ones(rank.device);
    Work work = rank.world.all_reduce(x);
    EXPECT_TRUE(poisoned(x));
    rank.world.broadcast(y, 0).wait();  // without a plan
    work.wait();
    EXPECT_EQ(to_doubles(x), std::vector<double>(3, 3));
    EXPECT_EQ(to_doubles(y), std::vector<double>(3, 1));
  });
}

TEST(LateComm, CountsWhatIsAskedOfIt) {
  launch_late(2, [](Rank rank) {
    const Tensor x = ones(rank.device);
    Work work = rank.world.all_reduce(x);
    EXPECT_EQ(rank.world.stats()[CommOp::AllReduce].payload_bytes, 12);
    work.wait();
    EXPECT_EQ(rank.world.stats()[CommOp::AllReduce].calls, 1);
  });
}

// Stands for rank 1 of 4 and keeps what reaches it: 's' or 'r', the peer, the elements.
class KeepingCommunicator final : public Communicator {
 public:
  using Message = std::tuple<char, int, std::int64_t>;
  explicit KeepingCommunicator(std::vector<Message>& seen)
      : Communicator(1, 4, "world"), seen_(seen) {}

 private:
  Work do_exchange(const Call&, std::span<const Transfer> transfers) override {
    for (const Transfer& t : transfers) {
      if (t.in.count() > 0) seen_.emplace_back('s', t.to, t.in.count());
      if (t.out.count() > 0) seen_.emplace_back('r', t.from, t.out.count());
    }
    return Work();
  }
  Work do_collective(Collective) override { return Work(); }
  Work do_plan(Collective, Plan) override { return Work(); }
  std::unique_ptr<Communicator> do_split(int, int, std::string) override { return nullptr; }

  std::vector<Message>& seen_;
};

TEST(DelayedComm, ShufflesAGroupAndKeepsTheOrderOfEachPair) {
  using Message = KeepingCommunicator::Message;
  CpuDevice device;
  const Tensor x({16}, DType::F32, device);
  const std::vector<Message> issued{{'s', 0, 1}, {'s', 0, 2}, {'r', 0, 3}, {'r', 0, 4},
                                    {'s', 2, 5}, {'s', 2, 6}, {'r', 3, 7}, {'r', 3, 8}};
  const std::vector<Transfer> transfers = [&] {
    std::vector<Transfer> result(4);
    result[0] = {x.rows(0, 1), 0, x.rows(8, 11), 0};
    result[1] = {x.rows(0, 2), 0, x.rows(8, 12), 0};
    result[2] = {x.rows(0, 5), 2, x.rows(8, 15), 3};
    result[3] = {x.rows(0, 6), 2, x.rows(8, 16), 3};
    return result;
  }();
  std::vector<Message> seen;
  const auto comm = make_delayed_comm(std::make_unique<KeepingCommunicator>(seen), 1);
  std::set<std::vector<Message>> orders;
  for (int repeat = 0; repeat < 50; ++repeat) {
    seen.clear();
    comm->exchange(transfers).wait();
    orders.insert(seen);
    EXPECT_TRUE(std::is_permutation(seen.begin(), seen.end(), issued.begin(), issued.end()));
    for (std::size_t i = 0; i < issued.size(); i += 2)
      EXPECT_LT(std::find(seen.begin(), seen.end(), issued[i]),
                std::find(seen.begin(), seen.end(), issued[i + 1]));
  }
  EXPECT_GT(orders.size(), 25U);
}

}  // namespace
}  // namespace aisc
