// Conformance of every backend: operations that add (multiply, ...) what all ranks have.
#include <gtest/gtest.h>

#include <cstring>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "tests/support/conformance.h"
#include "tests/support/tensors.h"

namespace aisc::conformance {
namespace {

// With each ReduceOp; the largest buffers only with a sum.
using Test = std::function<void(std::int64_t, DType, ReduceOp)>;
std::function<void(std::int64_t, DType)> with_each_op(const Test& test) {
  return [=](std::int64_t count, DType dtype) {
    for (const ReduceOp op : kReduceOps)
      if (count <= 1000 || op == ReduceOp::Sum) test(count, dtype, op);
  };
}

Tensor random_summand(std::int64_t count, int rank, Device& device) {
  return random_tensor({count}, DType::F32, device, "summand " + std::to_string(rank));
}

class Reductions : public EachBackend {
 protected:
  // An F32 all_reduce of random values, which every rank must see alike, to the bit.
  std::vector<float> random_sum(int ranks, std::int64_t count) const {
    std::mutex mutex;
    std::vector<float> sum;
    run_on(ranks, [&](Rank rank) {
      const Tensor on_device = random_summand(count, rank.world.rank(), rank.device);
      const Tensor all_on_device({ranks, count}, DType::F32, rank.device);
      rank.world.all_reduce(on_device).wait();
      rank.world.all_gather(on_device, all_on_device).wait();
      CpuDevice host;
      const Tensor x({count}, DType::F32, host), all({ranks, count}, DType::F32, host);
      host.copy(x, on_device);
      host.copy(all, all_on_device);
      const std::lock_guard lock(mutex);
      const std::span<const float> values = x.values<float>();
      sum.assign(values.begin(), values.end());
      for (int other = 0; other < ranks; ++other)
        EXPECT_EQ(std::memcmp(all.view().rows(other, other + 1).raw(), x.view().raw(), x.bytes()),
                  0)
            << "ranks " << rank.world.rank() << " and " << other << " of " << ranks;
    });
    return sum;
  }
};

TEST_P(Reductions, AllReduceLeavesTheResultOnEveryRank) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    const auto test = [&](std::int64_t count, DType dtype, ReduceOp op) {
      const Guarded x(count, dtype, rank.device, summand(op, me));
      rank.world.all_reduce(x.view(), op).wait();
      x.expect(reduced(op, size), describe("all_reduce", count, dtype, rank));
    };
    for_each_buffer(size, with_each_op(test));
  });
}

TEST_P(Reductions, ReduceLeavesTheResultOnTheRoot) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    const auto test = [&](std::int64_t count, DType dtype, ReduceOp op) {
      const int root = static_cast<int>(op) % size;
      const std::string what = describe("reduce", count, dtype, rank);
      const Guarded in(count, dtype, rank.device, summand(op, me));
      const Guarded out(count, dtype, rank.device, sent_by(me));
      rank.world.reduce(in.view(), out.view(), root, op).wait();
      in.expect(summand(op, me), what + ", in");
      out.expect(me == root ? reduced(op, size) : sent_by(me), what + ", out");

      rank.world.reduce(in.view(), me == root ? Buffer(in.view()) : Buffer(), root, op).wait();
      in.expect(me == root ? reduced(op, size) : summand(op, me), what + " in place");
    };
    for_each_buffer(size, with_each_op(test));
  });
}

TEST_P(Reductions, ReduceScatterLeavesEachRankItsChunkOfTheResult) {
  run([](Rank rank) {
    const int me = rank.world.rank(), size = rank.world.size();
    const auto test = [&](std::int64_t count, DType dtype, ReduceOp op) {
      const std::string what = describe("reduce_scatter", count, dtype, rank);
      const Values mine = summand(op, me), result = reduced(op, size);
      const std::int64_t begin = me * count;
      const Guarded in(size * count, dtype, rank.device, mine);
      const Guarded out(count, dtype, rank.device);
      rank.world.reduce_scatter(in.view(), out.view(), op).wait();
      in.expect(mine, what + ", in");
      out.expect(reduced(op, size, begin), what);

      rank.world.reduce_scatter(in.view(), in.part(begin, count), op).wait();
      const auto in_place = [&](std::int64_t i) {
        return i >= begin && i < begin + count ? result(i) : mine(i);
      };
      in.expect(in_place, what + " in place");
    };
    for_each_chunk(size, with_each_op(test));
  });
}

// Counts below and above inline_bytes: the last to arrive sums 3 elements, all ranks sum 20,001.
constexpr std::int64_t kFewAndMany[] = {3, 20'001};

TEST_P(Reductions, AllReduceIsTheSameOnEveryRankAndInEveryRunToTheBit) {
  for (const int ranks : rank_counts({2, 3, 7}))
    for (const std::int64_t count : kFewAndMany) {
      const std::vector<float> first = random_sum(ranks, count);
      for (int repeat = 0; repeat < 16; ++repeat)
        EXPECT_EQ(random_sum(ranks, count), first) << ranks << " ranks, run " << repeat;
    }
}

INSTANTIATE_TEST_SUITE_P(EachBackend, Reductions, ::testing::ValuesIn(backends()), name_of_case);

// What threads promise beyond that: sums in the order of ranks.
class ThreadReductions : public Reductions {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ThreadReductions);  // under mpirun

TEST_P(ThreadReductions, AllReduceAddsInTheOrderOfRanks) {
  for (const int ranks : {2, 3, 7})
    for (const std::int64_t count : kFewAndMany) {
      CpuDevice device;
      const Tensor expected = random_summand(count, 0, device);
      for (int rank = 1; rank < ranks; ++rank) {
        const Tensor next = random_summand(count, rank, device);
        for (std::int64_t i = 0; i < count; ++i) expected.data<float>()[i] += next.data<float>()[i];
      }
      const std::span<const float> sum = expected.values<float>();
      ASSERT_EQ(random_sum(ranks, count), std::vector<float>(sum.begin(), sum.end()));
    }
}

INSTANTIATE_TEST_SUITE_P(EachBackend, ThreadReductions,
                         ::testing::ValuesIn(backends({Backend::Plain, Backend::TinyChunks,
                                                       Backend::Late})),
                         name_of_case);

// Many pieces for each rank, and many messages.
class LargeReductions : public EachBackend {};

TEST_P(LargeReductions, ThreeMillionElements) {
  for (const int ranks : rank_counts({3}))
    run_on(ranks, [](Rank rank) {
      constexpr std::int64_t kCount = 3'000'000;
      const int size = rank.world.size();
      const Guarded x(kCount, DType::F32, rank.device, summand(ReduceOp::Sum, rank.world.rank()));
      rank.world.all_reduce(x.view()).wait();
      x.expect(reduced(ReduceOp::Sum, size), describe("all_reduce", kCount, DType::F32, rank));
    });
}

INSTANTIATE_TEST_SUITE_P(
    EachBackend, LargeReductions,
    ::testing::ValuesIn(backends({Backend::Plain, Backend::TinyChunks, Backend::Late, Backend::Mpi,
                                  Backend::MpiUnchecked, Backend::MpiPlans, Backend::MpiLate})),
    name_of_case);

}  // namespace
}  // namespace aisc::conformance
