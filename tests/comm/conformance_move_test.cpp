// Conformance of every backend: collectives that move data and add nothing.
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/conformance.h"
#include "tests/support/shared_counter.h"

namespace aisc::conformance {
namespace {

class Movements : public EachBackend {};

TEST_P(Movements, AllGatherLeavesEveryRanksChunkOnEveryRank) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    for_each_chunk(size, [&](std::int64_t count, DType dtype) {
      const std::string what = describe("all_gather", count, dtype, rank);
      const Guarded in(count, dtype, rank.device, sent_by(me));
      const Guarded out(size * count, dtype, rank.device);
      rank.world.all_gather(in.view(), out.view()).wait();
      in.expect(sent_by(me), what + ", in");
      out.expect(chunks_of_all(count), what);

      const Guarded whole(size * count, dtype, rank.device, chunks_of_all(count));
      for (int other = 0; other < size; ++other)
        if (other != me) rank.device.zero(whole.part(other * count, count));
      rank.world.all_gather(whole.part(me * count, count), whole.view()).wait();
      whole.expect(chunks_of_all(count), what + " in place");
    });
  });
}

TEST_P(Movements, GatherLeavesEveryRanksChunkOnTheRoot) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    for_each_chunk(size, [&](std::int64_t count, DType dtype) {
      for (const int root : {0, size - 1}) {
        const std::string what = describe("gather", count, dtype, rank);
        const Guarded in(count, dtype, rank.device, sent_by(me));
        const Guarded out(size * count, dtype, rank.device, sent_by(99));
        rank.world.gather(in.view(), out.view(), root).wait();
        in.expect(sent_by(me), what + ", in");
        if (me == root) out.expect(chunks_of_all(count), what);
        if (me != root) out.expect(sent_by(99), what + ", which is not the root");

        const Guarded whole(size * count, dtype, rank.device);
        const View mine = me == root ? whole.part(me * count, count) : in.view();
        rank.device.copy(mine, in.view());
        rank.world.gather(mine, me == root ? Buffer(whole.view()) : Buffer(), root).wait();
        if (me == root) whole.expect(chunks_of_all(count), what + " in place");
      }
    });
  });
}

TEST_P(Movements, ScatterLeavesEachRankItsChunkOfTheRoots) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    for_each_chunk(size, [&](std::int64_t count, DType dtype) {
      for (const int root : {0, size - 1}) {
        const std::string what = describe("scatter", count, dtype, rank);
        const Guarded in(size * count, dtype, rank.device, sent_by(me));
        const Guarded out(count, dtype, rank.device);
        rank.world.scatter(in.view(), out.view(), root).wait();
        in.expect(sent_by(me), what + ", in");
        out.expect(sent_by(root, me * count), what);

        const Guarded again(count, dtype, rank.device);
        const View mine = me == root ? in.part(me * count, count) : again.view();
        rank.world.scatter(me == root ? ConstBuffer(in.view()) : ConstBuffer(), mine, root).wait();
        in.expect(sent_by(me), what + " in place, in");
        if (me != root) again.expect(sent_by(root, me * count), what + " in place");
      }
    });
  });
}

TEST_P(Movements, BroadcastLeavesTheRootsBufferOnEveryRank) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    for_each_buffer(size, [&](std::int64_t count, DType dtype) {
      for (int root = 0; root < size; ++root) {
        const Guarded x(count, dtype, rank.device, sent_by(me));
        rank.world.broadcast(x.view(), root).wait();
        x.expect(sent_by(root), describe("broadcast", count, dtype, rank));
      }
    });
  });
}

TEST_P(Movements, AllToAllTransposesChunks) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    for_each_chunk(size, [&](std::int64_t count, DType dtype) {
      const std::string what = describe("all_to_all", count, dtype, rank);
      const Guarded in(size * count, dtype, rank.device, sent_by(me));
      const Guarded out(size * count, dtype, rank.device);
      rank.world.all_to_all(in.view(), out.view()).wait();
      in.expect(sent_by(me), what + ", in");
      out.expect(chunks_of_all(count, me * count), what);
    });
  });
}

// Rank s sends (s + 2 r) % 3 pieces to rank r: none to some, another number in each direction.
std::int64_t pieces(int source, int to) { return (source + 2 * to) % 3; }

TEST_P(Movements, AllToAllVPacksByRank) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    for_each_chunk(size, [&](std::int64_t count, DType dtype) {
      std::vector<std::int64_t> send_counts, recv_counts;
      std::vector<double> expected;
      std::int64_t total = 0;
      for (int other = 0; other < size; ++other) {
        send_counts.push_back(pieces(me, other) * count);
        recv_counts.push_back(pieces(other, me) * count);
        total += send_counts.back();
        std::int64_t begin = 0;  // of what `other` sends to this rank in what it sends
        for (int before = 0; before < me; ++before) begin += pieces(other, before) * count;
        for (std::int64_t i = 0; i < recv_counts.back(); ++i)
          expected.push_back(sent(other, begin + i));
      }
      const std::string what = describe("all_to_all_v", count, dtype, rank);
      const Guarded in(total, dtype, rank.device, sent_by(me));
      const Guarded out(static_cast<std::int64_t>(expected.size()), dtype, rank.device);
      rank.world.all_to_all_v(in.view(), send_counts, out.view(), recv_counts).wait();
      in.expect(sent_by(me), what + ", in");
      out.expect([&](std::int64_t i) { return expected[static_cast<std::size_t>(i)]; }, what);
    });
  });
}

TEST_P(Movements, NobodyLeavesABarrierBeforeAllHaveCome) {
  run([](Rank rank) {
    SharedCounter arrived(rank);
    for (int round = 1; round <= 20; ++round) {
      ++arrived;
      rank.world.barrier();
      EXPECT_GE(arrived.value(), round * rank.world.size());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(EachBackend, Movements, ::testing::ValuesIn(backends()), name_of_case);

}  // namespace
}  // namespace aisc::conformance
