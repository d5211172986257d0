// Conformance of every backend: the Works that stand for operations, and how long things live.
#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/conformance.h"
#include "tests/support/message_of.h"

namespace aisc::conformance {
namespace {

class Works : public EachBackend {};

// Lets time pass until `work` is over: the wall's goes by itself, the virtual one does not.
void poll(Work& work, Rank& rank) {
  while (!work.done()) {
    if (rank.clock.is_virtual()) rank.clock.advance(0x1p-10);
    std::this_thread::yield();
  }
}

TEST_P(Works, IsDoneOnceItsOtherSideHasCome) {
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

TEST_P(Works, WaitAnyReturnsEachWorkOnce) {
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

TEST_P(Works, WaitAnyTakesTheOneThatIsOver) {
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

TEST_P(Works, ThatIsMovedOrDroppedIsDoneAllTheSame) {
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

TEST_P(Works, HoldSharesOfTheirTensorsUntilTheyAreOver) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    const int next = (me + 1) % size, previous = (me + size - 1) % size;
    const Guarded in(1000, DType::F32, rank.device, sent_by(me));
    const Guarded out(1000, DType::F32, rank.device);
    Tensor given({1000}, DType::F32, rank.device);
    rank.device.copy(given, in.view());
    Work send = rank.world.send(given, next);
    EXPECT_GE(given.owners(), 2);
    given = Tensor();
    rank.world.recv(out.view(), previous).wait();
    send.wait();
    out.expect(sent_by(previous), "recv of a tensor that its sender has given away");
  });
}

// And no longer: what a rank has waited for is its own again, and nothing is left behind.
TEST_P(Works, GiveTheirSharesBack) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    const std::int64_t live_before = rank.device.ledger().total.live_bytes;
    for (const std::int64_t count : {10, 20'000}) {
      const Tensor in = Tensor::zeros({size * count}, DType::F32, rank.device);
      const Tensor out({size * count}, DType::F32, rank.device);
      const Tensor chunk = Tensor::zeros({count}, DType::F32, rank.device);
      const Tensor chunk_out({count}, DType::F32, rank.device);
      const auto expect_back = [&](const char* call, Work work) {
        work.wait();
        for (const Tensor* tensor : {&in, &out, &chunk, &chunk_out})
          EXPECT_EQ(tensor->owners(), 1) << call;
      };
      expect_back("all_reduce", rank.world.all_reduce(in));
      expect_back("reduce", rank.world.reduce(in, out, 0));
      expect_back("reduce_scatter", rank.world.reduce_scatter(in, chunk_out));
      expect_back("all_gather", rank.world.all_gather(chunk, out));
      expect_back("gather", rank.world.gather(chunk, out, 0));
      expect_back("scatter", rank.world.scatter(in, chunk_out, 0));
      expect_back("broadcast", rank.world.broadcast(in, 0));
      expect_back("all_to_all", rank.world.all_to_all(in, out));
      const Transfer ring[] = {
          {.in = chunk, .to = (me + 1) % size, .out = chunk_out, .from = (me + size - 1) % size}};
      Work exchange = rank.world.exchange(ring);
      exchange.wait();
      EXPECT_EQ(chunk_out.owners(), 2) << "the ring's own, and mine";
    }
    EXPECT_EQ(rank.device.ledger().total.live_bytes, live_before);
  });
}

TEST_P(Works, MayOutliveTheirCommunicator) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    for (const std::int64_t count : {10, 20'000}) {
      auto side = rank.world.split(0, 0, "side");
      const Guarded x(count, DType::F32, rank.device, summand(ReduceOp::Sum, me));
      const Guarded in(count, DType::F32, rank.device, sent_by(me));
      const Guarded out(count, DType::F32, rank.device);
      Work sum = side->all_reduce(x.view());
      Work send = side->send(in.view(), (me + 1) % size);
      Work recv = side->recv(out.view(), (me + size - 1) % size);
      side.reset();
      sum.wait();
      recv.wait();
      send.wait();
      x.expect(reduced(ReduceOp::Sum, size), "all_reduce of a communicator that is gone");
      out.expect(sent_by((me + size - 1) % size), "recv of a communicator that is gone");
    }
  });
}

// More than any backend has room for at a time.
TEST_P(Works, HundredsInFlight) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    std::vector<Guarded> buffers;
    std::vector<Work> works;
    for (int i = 0; i < 200; ++i) {
      buffers.emplace_back(i % 50 == 0 ? 20'000 : i, DType::F32, rank.device,
                           summand(ReduceOp::Sum, me));
      works.push_back(rank.world.all_reduce(buffers.back().view()));
    }
    for (std::size_t i = 0; i < works.size(); ++i) works[works.size() - 1 - i].wait();
    for (const Guarded& x : buffers) x.expect(reduced(ReduceOp::Sum, size), "all_reduce");
  });
}

INSTANTIATE_TEST_SUITE_P(EachBackend, Works, ::testing::ValuesIn(backends()), name_of_case);

TEST(WaitAny, TakesTheFirstThatIsEmpty) {
  std::array<Work, 2> empty;
  EXPECT_EQ(wait_any(empty), 0U);
}

TEST(WaitAny, RefusesNothingAndWorksOfOtherRanks) {
  EXPECT_EQ(message_of([] { (void)wait_any({}); }), "wait_any: no operations were given");
  CpuDevice device;
  const auto one = make_self_communicator("one"), other = make_self_communicator("other");
  const Tensor x = Tensor::zeros({3}, DType::F32, device);
  std::array<Work, 2> works{one->send(x, 0), other->send(x, 0)};
  EXPECT_EQ(message_of([&] { (void)wait_any(works); }),
            "wait_any: the operations belong to different ranks");
  one->recv(Tensor({3}, DType::F32, device), 0).wait();
  other->recv(Tensor({3}, DType::F32, device), 0).wait();
}

}  // namespace
}  // namespace aisc::conformance
