// Conformance of every backend: messages between two ranks, and the Works that stand for them.
#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/conformance.h"

namespace aisc::conformance {
namespace {

class Messages : public EachBackend {};

// Lets time pass until `work` is over: the wall's goes by itself, the virtual one does not.
void poll(Work& work, Rank& rank) {
  while (!work.done()) {
    if (rank.clock.is_virtual()) rank.clock.advance(0x1p-10);
    std::this_thread::yield();
  }
}

TEST_P(Messages, ExchangeSendsEveryRankAnotherNumberOfElements) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    for_each_chunk(size, [&](std::int64_t count, DType dtype) {
      // Rank s sends (s + r) % 3 * count elements to rank r, none to some; also to itself.
      std::vector<Guarded> in, out;
      std::vector<Transfer> transfers;
      for (int other = 0; other < size; ++other) {
        const std::int64_t n = (me + other) % 3 * count;
        in.emplace_back(n, dtype, rank.device, sent_by(me, other));
        out.emplace_back(n, dtype, rank.device);
        transfers.push_back({in.back().view(), other, out.back().view(), other});
      }
      rank.world.exchange(transfers).wait();
      for (int other = 0; other < size; ++other) {
        const std::string what = describe("exchange", count, dtype, rank);
        in[static_cast<std::size_t>(other)].expect(sent_by(me, other), what + ", in");
        out[static_cast<std::size_t>(other)].expect(sent_by(other, me), what);
      }
    });
  });
}

TEST_P(Messages, SendMeetsRecv) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    const int next = (me + 1) % size, previous = (me + size - 1) % size;
    for_each_buffer(size, [&](std::int64_t count, DType dtype) {
      const Guarded in(count, dtype, rank.device, sent_by(me));
      const Guarded out(count, dtype, rank.device);
      Work send = rank.world.send(in.view(), next), recv = rank.world.recv(out.view(), previous);
      send.wait();
      recv.wait();
      in.expect(sent_by(me), describe("send", count, dtype, rank));
      out.expect(sent_by(previous), describe("recv", count, dtype, rank));
    });
  });
}

// Messages of a pair, by whatever call they are sent and received, meet in the order of issue;
// Works are waited for in another.
TEST_P(Messages, MatchFirstInFirstOutPerPair) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    const int next = (me + 1) % size, previous = (me + size - 1) % size;
    constexpr int kMessages = 8;
    std::vector<Guarded> in, out;
    for (int m = 0; m < kMessages; ++m) {
      in.emplace_back(100 * m + 1, DType::I32, rank.device, sent_by(me, m));
      out.emplace_back(100 * m + 1, DType::I32, rank.device);
    }
    std::vector<Work> works;
    const auto at = [](auto& buffers, int m) {
      return buffers[static_cast<std::size_t>(m)].view();
    };
    for (int m = 0; m < kMessages; m += 4) {
      works.push_back(rank.world.send(at(in, m), next));
      const Transfer sends[] = {{.in = at(in, m + 1), .to = next},
                                {.in = at(in, m + 2), .to = next},
                                {.out = at(out, m), .from = previous}};
      works.push_back(rank.world.exchange(sends));
      works.push_back(rank.world.recv(at(out, m + 1), previous));
      works.push_back(rank.world.send(at(in, m + 3), next));
      const Transfer recvs[] = {{.out = at(out, m + 2), .from = previous},
                                {.out = at(out, m + 3), .from = previous}};
      works.push_back(rank.world.exchange(recvs));
    }
    while (!works.empty()) {
      works.back().wait();
      works.pop_back();
    }
    for (int m = 0; m < kMessages; ++m)
      out[static_cast<std::size_t>(m)].expect(sent_by(previous, m), "message " + std::to_string(m));
  });
}

TEST_P(Messages, RunBesideCollectives) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    const int next = (me + 1) % size, previous = (me + size - 1) % size;
    const Guarded in(1000, DType::F32, rank.device, sent_by(me));
    const Guarded out(1000, DType::F32, rank.device);
    const Guarded x(1000, DType::F32, rank.device, summand(ReduceOp::Sum, me));
    Work recv = rank.world.recv(out.view(), previous);
    Work sum = rank.world.all_reduce(x.view());
    Work send = rank.world.send(in.view(), next);
    sum.wait();  // does not wait for the messages, which nobody has sent on rank 0's left before
    recv.wait();
    send.wait();
    x.expect(reduced(ReduceOp::Sum, size), "all_reduce beside messages");
    out.expect(sent_by(previous), "recv beside a collective");
  });
}

TEST_P(Messages, WorkIsDoneOnceItsOtherSideHasCome) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    const int next = (me + 1) % size, previous = (me + size - 1) % size;
    const Guarded in(3, DType::F32, rank.device, sent_by(me));
    const Guarded out(3, DType::F32, rank.device);
    Work recv = rank.world.recv(out.view(), previous);
    if (!rank.clock.is_virtual()) {
      EXPECT_FALSE(recv.done());
      rank.world.barrier();  // nobody has sent before all have asked
    }
    Work send = rank.world.send(in.view(), next);
    poll(recv, rank);
    recv.wait();
    poll(send, rank);
    send.wait();
    EXPECT_TRUE(recv.done());
    out.expect(sent_by(previous), "recv after done()");

    const Guarded x(1000, DType::F32, rank.device, summand(ReduceOp::Sum, me));
    Work sum = rank.world.all_reduce(x.view());
    poll(sum, rank);
    sum.wait();
    x.expect(reduced(ReduceOp::Sum, size), "all_reduce after done()");
  });
}

TEST_P(Messages, WaitAnyReturnsEachWorkOnce) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    std::vector<Guarded> in, out;
    std::vector<Work> recvs, sends;
    for (int other = 0; other < size; ++other) {
      in.emplace_back(10, DType::F32, rank.device, sent_by(me, other));
      out.emplace_back(10, DType::F32, rank.device);
    }
    for (int other = 0; other < size; ++other)
      recvs.push_back(rank.world.recv(out[static_cast<std::size_t>(other)].view(), other));
    for (int other = 0; other < size; ++other)
      sends.push_back(rank.world.send(in[static_cast<std::size_t>(other)].view(), other));
    std::vector<int> sources(static_cast<std::size_t>(size));
    for (int other = 0; other < size; ++other) sources[static_cast<std::size_t>(other)] = other;
    while (!recvs.empty()) {
      const std::size_t index = wait_any(recvs);
      ASSERT_LT(index, recvs.size());
      EXPECT_TRUE(recvs[index].done()) << "must be empty";
      const int source = sources[index];
      out[static_cast<std::size_t>(source)].expect(sent_by(source, me), "recv after wait_any");
      recvs.erase(recvs.begin() + static_cast<std::ptrdiff_t>(index));
      sources.erase(sources.begin() + static_cast<std::ptrdiff_t>(index));
    }
    for (Work& send : sends) send.wait();
  });
}

TEST_P(Messages, WaitAnyTakesTheOneThatIsOver) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    const Guarded early(10, DType::F32, rank.device, sent_by(me));
    const Guarded late(10, DType::F32, rank.device, sent_by(me, 1));
    const int next = (me + 1) % size, previous = (me + size - 1) % size;
    const auto side = rank.world.split(0, me, "side");
    std::array<Work, 2> works;
    works[0] = side->recv(late.view(), previous);
    works[1] = rank.world.all_reduce(early.view());
    EXPECT_EQ(wait_any(works), 1U);
    rank.world.barrier();  // nobody sends before all have returned from wait_any
    const Guarded in(10, DType::F32, rank.device, sent_by(me, 1));
    Work send = side->send(in.view(), next);
    works[0].wait();
    send.wait();
    late.expect(sent_by(previous, 1), "recv that wait_any left");
  });
}

TEST_P(Messages, WorkThatIsMovedOrDroppedIsDoneAllTheSame) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    const Guarded moved(1000, DType::F32, rank.device, summand(ReduceOp::Sum, me));
    const Guarded dropped(1000, DType::F32, rank.device, summand(ReduceOp::Sum, me));
    const Guarded replaced(1000, DType::F32, rank.device, summand(ReduceOp::Sum, me));
    {
      const Work end_of_scope = rank.world.all_reduce(dropped.view());
      Work first = rank.world.all_reduce(moved.view());
      Work second = std::move(first);
      first.wait();  // empty: over at once
      second.wait();
      second = rank.world.all_reduce(replaced.view());
      second = Work();
      replaced.expect(reduced(ReduceOp::Sum, size), "all_reduce whose Work was replaced");
    }
    moved.expect(reduced(ReduceOp::Sum, size), "all_reduce whose Work was moved");
    dropped.expect(reduced(ReduceOp::Sum, size), "all_reduce whose Work was dropped");
  });
}

TEST_P(Messages, WorkHoldsAShareOfItsTensors) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    const int next = (me + 1) % size, previous = (me + size - 1) % size;
    const Guarded in(1000, DType::F32, rank.device, sent_by(me));
    const Guarded out(1000, DType::F32, rank.device);
    Tensor given({1000}, DType::F32, rank.device);
    rank.device.copy(given, in.view());
    Work send = rank.world.send(given, next);
    given = Tensor();
    rank.world.recv(out.view(), previous).wait();
    send.wait();
    out.expect(sent_by(previous), "recv of a tensor that its sender has given away");
  });
}

INSTANTIATE_TEST_SUITE_P(EachBackend, Messages, kBackends, name_of_case);

TEST(WaitAny, TakesTheFirstThatIsEmptyAndRefusesNone) {
  std::array<Work, 2> empty;
  EXPECT_EQ(wait_any(empty), 0U);
  EXPECT_THROW(wait_any({}), Error);
}

}  // namespace
}  // namespace aisc::conformance
