// Plans against hand formulas: what every rank ends with, and how many steps, messages, bytes and
// additions that takes, for powers of two and not, counts that ranks divide and not, every root.
#include "common/comm/plan.h"

#include <gtest/gtest.h>

#include <bitset>
#include <functional>

#include "tests/comm/plan_oracle.h"

namespace aisc {
namespace {

using Where = Piece::Where;
using Memory = RankMemory<std::int64_t>;

constexpr int kSizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33};
constexpr std::int64_t kPoison = -77777;

// Calls f(size, count): counts around the number of ranks, one that few divide, one that all do.
void for_sizes_and_counts(const std::function<void(int, std::int64_t)>& f) {
  for (const int p : kSizes)
    for (const std::int64_t count : {0, 1, p - 1, p + 1, 1000, 12 * p}) {
      SCOPED_TRACE(testing::Message() << p << " ranks, count " << count);
      f(p, count);
    }
}
void for_sizes_counts_and_roots(const std::function<void(int, std::int64_t, int)>& f) {
  for_sizes_and_counts([&](int p, std::int64_t count) {
    for (int root = 0; root < p; ++root) {
      SCOPED_TRACE(testing::Message() << "root " << root);
      f(p, count, root);
    }
  });
}

Collective call(CommOp op, std::int64_t count, int root = -1) {
  return {.call = {.op = op, .count = count, .dtype = DType::F32, .peer = root}};
}
// What `make` gives for each rank.
template <class Make>
auto each_of(int p, Make&& make) {
  std::vector<decltype(make(0))> all;
  all.reserve(static_cast<std::size_t>(p));
  for (int r = 0; r < p; ++r) all.push_back(make(r));
  return all;
}
std::vector<Plan> plans_of(const PlanMaker& maker, const Collective& c, int p) {
  return each_of(p, [&](int r) { return maker(c, r, p); });
}

// Element i of rank r, and the sum of that over all p ranks.
std::int64_t value(std::int64_t r, std::int64_t i) { return (r + 1) * (r + 1) * 1000 + i; }
std::int64_t sum(std::int64_t p, std::int64_t i) {
  return p * (p + 1) * (2 * p + 1) / 6 * 1000 + p * i;
}

std::int64_t& at(Memory& m, const Extent& extent, std::int64_t i) {
  return m.values[static_cast<std::size_t>(extent.begin + i)];
}
// Memory of rank r with its values in `in`, or in `out` where there is no `in`, all else poison.
Memory memory_of(int r, Extent in, Extent out) {
  const std::int64_t end = std::max(in.begin + in.count, out.begin + out.count);
  Memory m{std::vector<std::int64_t>(static_cast<std::size_t>(end), kPoison), in, out};
  for (std::int64_t i = 0; i < in.count; ++i) at(m, in, i) = value(r, i);
  return m;
}
Memory apart(int r, std::int64_t in, std::int64_t out) { return memory_of(r, {0, in}, {in, out}); }
// all_reduce and broadcast: out is what goes in.
Memory inout(int r, std::int64_t count) {
  Memory m = memory_of(r, {0, count}, {0, count});
  m.in = {};
  return m;
}

struct Total {
  Traffic most{}, sum{};  // of the rank that does most of each, and of all ranks
  std::int64_t rounds = 0;
};

// Runs the plans; every rank's `in` must come out as it went in, except where it is `out`.
Total run(const std::vector<Plan>& plans, std::vector<Memory>& memory) {
  const std::vector<Memory> before = memory;
  PlanOracle<std::int64_t> oracle(plans, memory, kPoison);
  EXPECT_EQ(oracle.run(), "");
  Total total{.rounds = oracle.rounds()};
  for (std::size_t r = 0; r < plans.size(); ++r) {
    const Traffic t = traffic_of(plans[r]);
    for (const auto field :
         {&Traffic::steps, &Traffic::messages, &Traffic::elements, &Traffic::added}) {
      total.most.*field = std::max(total.most.*field, t.*field);
      total.sum.*field += t.*field;
    }
    const Extent &in = memory[r].in, &out = memory[r].out;
    for (std::int64_t i = in.begin; i < in.begin + in.count; ++i) {
      if (i >= out.begin && i < out.begin + out.count) continue;
      const auto e = static_cast<std::size_t>(i);
      EXPECT_EQ(memory[r].values[e], before[r].values[e]) << "in was changed on rank " << r;
    }
    EXPECT_EQ(plans[r].name, plans[0].name);
  }
  return total;
}

// Rank r's output is f(r, i), for all r and i.
void expect_outs(std::vector<Memory>& memory,
                 const std::function<std::int64_t(int, std::int64_t)>& f) {
  for (int r = 0; r < static_cast<int>(memory.size()); ++r) {
    Memory& m = memory[static_cast<std::size_t>(r)];
    for (std::int64_t i = 0; i < m.out.count; ++i)
      ASSERT_EQ(at(m, m.out, i), f(r, i)) << "rank " << r << ", element " << i;
  }
}

std::int64_t log2_ceil(int p) {
  std::int64_t log = 0;
  while ((1 << log) < p) ++log;
  return log;
}
std::int64_t chunk_count(std::int64_t n, int i, int p) {
  return chunk_of(Where::Out, n, i % p, p).count;
}

TEST(RingAllReduce, SumsOnEveryRankAndSendsEachByteTwiceTimesPMinusOneOverP) {
  for_sizes_and_counts([](int p, std::int64_t n) {
    const auto plans = plans_of(ring_all_reduce, call(CommOp::AllReduce, n), p);
    auto memory = each_of(p, [&](int r) { return inout(r, n); });
    const Total total = run(plans, memory);
    expect_outs(memory, [&](int, auto i) { return sum(p, i); });
    for (int r = 0; r < p; ++r) {
      // All chunks twice, but for one in each half.
      const Traffic t = traffic_of(plans[static_cast<std::size_t>(r)]);
      EXPECT_EQ(t.elements,
                p == 1 ? 0 : 2 * n - chunk_count(n, r + 1, p) - chunk_count(n, r + 2, p));
      EXPECT_EQ(t.added, p == 1 ? 0 : n - chunk_count(n, r, p));
      if (n < p) continue;  // empty chunks are not sent
      EXPECT_EQ(t.steps, 2 * (p - 1));
      EXPECT_EQ(t.messages, 2 * (p - 1));
      if (n % p == 0) {
        EXPECT_EQ(t.elements, 2 * n * (p - 1) / p);
      }
    }
    EXPECT_EQ(total.sum.elements, 2 * n * (p - 1));
    EXPECT_EQ(total.sum.added, n * (p - 1));
    if (n >= p) {
      EXPECT_EQ(total.rounds, 2 * (p - 1));
    }
    if (n == 0) {
      EXPECT_EQ(total.most.steps, 0);
    }
  });
}

// Values that lose bits in every sum, so that another order of additions gives other bits.
TEST(RingAllReduce, GivesAllRanksTheSameBits) {
  constexpr int p = 7, n = 1000;
  const auto plans = plans_of(ring_all_reduce, call(CommOp::AllReduce, n), p);
  auto memory = each_of(p, [](int r) {
    RankMemory<float> m{std::vector<float>(n), {}, {0, n}};
    for (int i = 0; i < n; ++i)
      m.values[static_cast<std::size_t>(i)] =
          static_cast<float>((r * 7919 + i * 104729) % 1009) / 7;
    return m;
  });
  EXPECT_EQ(PlanOracle<float>(plans, memory, 0).run(), "");
  for (auto& m : memory) {
    m.values.resize(n);  // without scratch
    EXPECT_EQ(m.values, memory[0].values);
  }
}

TEST(TreeAllReduce, SumsOnEveryRankInTwoLogPSteps) {
  for_sizes_and_counts([](int p, std::int64_t n) {
    const auto plans = plans_of(tree_all_reduce, call(CommOp::AllReduce, n), p);
    auto memory = each_of(p, [&](int r) { return inout(r, n); });
    const Total total = run(plans, memory);
    expect_outs(memory, [&](int, auto i) { return sum(p, i); });
    const std::int64_t L = n > 0 ? log2_ceil(p) : 0;
    EXPECT_EQ(total.most.steps, 2 * L);
    EXPECT_EQ(total.rounds, 2 * L);
    EXPECT_EQ(total.most.elements, L * n);
    EXPECT_EQ(total.sum.elements, 2 * n * (p - 1));
    EXPECT_EQ(total.sum.added, n * (p - 1));
  });
}

TEST(TreeReduce, SumsOnTheRootInLogPStepsAndEachRankSendsOnce) {
  for_sizes_counts_and_roots([](int p, std::int64_t n, int root) {
    const auto plans = plans_of(tree_reduce, call(CommOp::Reduce, n, root), p);
    for (const bool in_place : {false, true}) {
      auto memory = each_of(p, [&](int r) { return apart(r, n, r == root ? n : 0); });
      Memory& at_root = memory[static_cast<std::size_t>(root)];
      if (in_place) at_root = memory_of(root, {0, n}, {0, n});
      const Total total = run(plans, memory);
      expect_outs(memory, [&](int, auto i) { return sum(p, i); });
      const std::int64_t L = n > 0 && p > 1 ? log2_ceil(p) : 0;
      EXPECT_EQ(total.rounds, L);
      EXPECT_EQ(total.most.steps, p == 1 && n > 0 ? 1 : L);  // alone: a copy
      EXPECT_EQ(total.most.added, L * n);
      EXPECT_EQ(total.sum.added, n * (p - 1));
    }
    for (int r = 0; r < p; ++r) {
      const Traffic t = traffic_of(plans[static_cast<std::size_t>(r)]);
      EXPECT_EQ(t.elements, r == root ? 0 : n);
      EXPECT_EQ(t.messages, r == root || n == 0 ? 0 : 1);
    }
  });
}

TEST(TreeBroadcast, CopiesTheRootInLogPStepsAndTheRootSendsMost) {
  for_sizes_counts_and_roots([](int p, std::int64_t n, int root) {
    const auto plans = plans_of(tree_broadcast, call(CommOp::Broadcast, n, root), p);
    auto memory = each_of(p, [&](int r) { return r == root ? inout(r, n) : apart(r, 0, n); });
    const Total total = run(plans, memory);
    expect_outs(memory, [&](int, auto i) { return value(root, i); });
    const std::int64_t L = n > 0 ? log2_ceil(p) : 0;
    EXPECT_EQ(total.most.steps, L);
    EXPECT_EQ(total.rounds, L);
    EXPECT_EQ(total.most.elements, L * n);
    EXPECT_EQ(traffic_of(plans[static_cast<std::size_t>(root)]).elements, L * n);
    EXPECT_EQ(total.sum.elements, n * (p - 1));
  });
}

// What rings and pairwise exchange of p chunks of c elements have in common.
void expect_p_minus_one_chunks(const std::vector<Plan>& plans, const Total& total, std::int64_t c) {
  const auto others = static_cast<std::int64_t>(plans.size()) - 1;
  for (const Plan& plan : plans) {
    EXPECT_EQ(traffic_of(plan).elements, others * c);
    EXPECT_EQ(traffic_of(plan).messages, c > 0 ? others : 0);
    EXPECT_EQ(traffic_of(plan).steps, c == 0 ? 0 : others == 0 ? 1 : others);  // alone: a copy
  }
  EXPECT_EQ(total.rounds, c > 0 ? others : 0);
}

TEST(RingReduceScatter, LeavesTheSumOfItsChunkOnEachRank) {
  for_sizes_and_counts([](int p, std::int64_t c) {
    const auto plans = plans_of(ring_reduce_scatter, call(CommOp::ReduceScatter, c), p);
    for (const bool in_place : {false, true}) {
      auto memory = each_of(p, [&](int r) {
        return in_place ? memory_of(r, {0, p * c}, {r * c, c}) : apart(r, p * c, c);
      });
      const Total total = run(plans, memory);
      expect_outs(memory, [&](int r, auto i) { return sum(p, r * c + i); });
      expect_p_minus_one_chunks(plans, total, c);
      EXPECT_EQ(total.most.added, (p - 1) * c);
    }
  });
}

TEST(RingAllGather, GivesEveryRankAllChunks) {
  for_sizes_and_counts([](int p, std::int64_t c) {
    const auto plans = plans_of(ring_all_gather, call(CommOp::AllGather, c), p);
    for (const bool in_place : {false, true}) {
      auto memory = each_of(p, [&](int r) {
        return in_place ? memory_of(r, {r * c, c}, {0, p * c}) : apart(r, c, p * c);
      });
      const Total total = run(plans, memory);
      expect_outs(memory, [&](int, auto i) { return value(i / c, i % c); });
      expect_p_minus_one_chunks(plans, total, c);
      EXPECT_EQ(total.sum.added, 0);
    }
  });
}

TEST(DirectGather, BringsAllChunksToTheRootInOneStep) {
  for_sizes_counts_and_roots([](int p, std::int64_t c, int root) {
    const auto plans = plans_of(direct_gather, call(CommOp::Gather, c, root), p);
    for (const bool in_place : {false, true}) {
      auto memory = each_of(p, [&](int r) { return apart(r, c, r == root ? p * c : 0); });
      Memory& at_root = memory[static_cast<std::size_t>(root)];
      if (in_place) at_root = memory_of(root, {root * c, c}, {0, p * c});
      const Total total = run(plans, memory);
      expect_outs(memory, [&](int, auto i) { return value(i / c, i % c); });
      EXPECT_EQ(total.most.steps, c > 0 ? 1 : 0);
    }
    for (int r = 0; r < p; ++r)
      EXPECT_EQ(traffic_of(plans[static_cast<std::size_t>(r)]).elements, r == root ? 0 : c);
  });
}

TEST(DirectScatter, BringsEachRankItsChunkInOneStep) {
  for_sizes_counts_and_roots([](int p, std::int64_t c, int root) {
    const auto plans = plans_of(direct_scatter, call(CommOp::Scatter, c, root), p);
    for (const bool in_place : {false, true}) {
      auto memory = each_of(p, [&](int r) { return apart(r, r == root ? p * c : 0, c); });
      if (in_place)
        memory[static_cast<std::size_t>(root)] = memory_of(root, {0, p * c}, {root * c, c});
      const Total total = run(plans, memory);
      expect_outs(memory, [&](int r, auto i) { return value(root, r * c + i); });
      EXPECT_EQ(total.most.steps, c > 0 ? 1 : 0);
    }
    for (int r = 0; r < p; ++r)
      EXPECT_EQ(traffic_of(plans[static_cast<std::size_t>(r)]).elements,
                r == root ? (p - 1) * c : 0);
  });
}

TEST(PairwiseAllToAll, TransposesChunksOverRanks) {
  for_sizes_and_counts([](int p, std::int64_t c) {
    Collective collective = call(CommOp::AllToAll, c);
    collective.send_counts.assign(static_cast<std::size_t>(p), c);
    collective.recv_counts = collective.send_counts;
    const auto plans = plans_of(pairwise_all_to_all, collective, p);
    auto memory = each_of(p, [&](int r) { return apart(r, p * c, p * c); });
    const Total total = run(plans, memory);
    expect_outs(memory, [&](int r, auto i) { return value(i / c, r * c + i % c); });
    expect_p_minus_one_chunks(plans, total, c);
  });
}

// Rank a sends (3a + 5b) % 4 elements to rank b: some nothing, some to themselves only.
TEST(PairwiseAllToAll, SendsUnequalCountsPackedByRank) {
  const auto count = [](int a, int b) { return std::int64_t{(3 * a + 5 * b) % 4}; };
  const auto begin = [&](int a, int b) {  // of the elements for b in a's input
    std::int64_t sum = 0;
    for (int k = 0; k < b; ++k) sum += count(a, k);
    return sum;
  };
  for (const int p : kSizes) {
    SCOPED_TRACE(p);
    const auto plans = each_of(p, [&](int r) {
      Collective c = call(CommOp::AllToAllV, 0);
      c.send_counts = each_of(p, [&](int k) { return count(r, k); });
      c.recv_counts = each_of(p, [&](int k) { return count(k, r); });
      return pairwise_all_to_all(c, r, p);
    });
    std::vector<std::vector<std::int64_t>> expected(static_cast<std::size_t>(p));
    auto memory = each_of(p, [&](int r) {
      std::vector<std::int64_t>& mine = expected[static_cast<std::size_t>(r)];
      for (int k = 0; k < p; ++k)
        for (std::int64_t i = 0; i < count(k, r); ++i) mine.push_back(value(k, begin(k, r) + i));
      return apart(r, begin(r, p), static_cast<std::int64_t>(mine.size()));
    });
    const Total total = run(plans, memory);
    EXPECT_LE(total.rounds, p - 1);
    expect_outs(memory, [&](int r, auto i) {
      return expected[static_cast<std::size_t>(r)][static_cast<std::size_t>(i)];
    });
    for (int r = 0; r < p; ++r)
      EXPECT_EQ(traffic_of(plans[static_cast<std::size_t>(r)]).elements, begin(r, p) - count(r, r));
  }
}

TEST(DisseminationBarrier, LetsEveryRankKnowOfEveryOtherInLogPSteps) {
  for (const int p : kSizes) {
    SCOPED_TRACE(p);
    const auto plans = plans_of(dissemination_barrier, call(CommOp::Barrier, 0), p);
    std::vector<Memory> memory(static_cast<std::size_t>(p));
    const Total total = run(plans, memory);
    const auto L = static_cast<std::size_t>(log2_ceil(p));
    EXPECT_EQ(total.rounds, log2_ceil(p));
    EXPECT_EQ(total.sum.elements, 0);
    EXPECT_EQ(total.sum.messages, p * log2_ceil(p));
    std::vector<std::bitset<64>> knows(static_cast<std::size_t>(p));
    for (std::size_t r = 0; r < plans.size(); ++r) {
      ASSERT_EQ(plans[r].steps(), L);
      knows[r].set(r);
    }
    for (std::size_t s = 0; s < L; ++s) {
      const auto before = knows;
      for (std::size_t r = 0; r < plans.size(); ++r)
        for (const PlanAction& action : plans[r].step(s))
          if (action.kind == PlanAction::Kind::Recv)
            knows[r] |= before[static_cast<std::size_t>(action.peer)];
    }
    for (const auto& known : knows) EXPECT_EQ(known.count(), static_cast<std::size_t>(p));
  }
}

}  // namespace
}  // namespace aisc
