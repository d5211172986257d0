// What tests of plans have in common: numbers of ranks and counts, memory of all ranks with known
// values in it, a run of all ranks' plans, and what they moved.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tests/comm/plan_oracle.h"
#include "tests/support/sanitized.h"

namespace aisc::plan_runs {

using Where = Piece::Where;
using Memory = RankMemory<std::int64_t>;

inline constexpr int kManySizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33},
                     kFewSizes[] = {1, 2, 3, 5, 8};
inline constexpr std::span<const int> kSizes =
    kSanitized ? std::span<const int>(kFewSizes) : std::span<const int>(kManySizes);
inline constexpr std::int64_t kPoison = -77777;

// Calls f(size, count): counts around the number of ranks, one that few divide, one that all do.
// The smallest come first; what fails first is the last.
inline void for_sizes_and_counts(const std::function<void(int, std::int64_t)>& f) {
  for (const int p : kSizes)
    for (const std::int64_t count : {0, 1, p - 1, p + 1, 1000, 12 * p}) {
      SCOPED_TRACE(testing::Message() << p << (p == 1 ? " rank" : " ranks") << ", count " << count);
      f(p, count);
      if (testing::Test::HasFailure()) return;
    }
}
inline void for_sizes_counts_and_roots(const std::function<void(int, std::int64_t, int)>& f) {
  for_sizes_and_counts([&](int p, std::int64_t count) {
    for (int root = 0; root < p; ++root) {
      SCOPED_TRACE(testing::Message() << "root " << root);
      f(p, count, root);
      if (testing::Test::HasFailure()) return;
    }
  });
}

inline Collective call(CommOp op, std::int64_t count, int root = -1) {
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
inline std::vector<Plan> plans_of(const PlanMaker& maker, const Collective& c, int p) {
  return each_of(p, [&](int r) { return maker(c, r, p); });
}

// Element i of rank r, and the sum of that over all p ranks.
inline std::int64_t value(std::int64_t r, std::int64_t i) { return (r + 1) * (r + 1) * 1000 + i; }
inline std::int64_t sum(std::int64_t p, std::int64_t i) {
  return p * (p + 1) * (2 * p + 1) / 6 * 1000 + p * i;
}

inline std::int64_t& at(Memory& m, const Extent& extent, std::int64_t i) {
  return m.values[static_cast<std::size_t>(extent.begin + i)];
}
// Memory of rank r with its values in `in`, or in `out` where there is no `in`, all else poison.
inline Memory memory_of(int r, Extent in, Extent out) {
  const std::int64_t end = std::max(in.begin + in.count, out.begin + out.count);
  Memory m{std::vector<std::int64_t>(static_cast<std::size_t>(end), kPoison), in, out};
  for (std::int64_t i = 0; i < in.count; ++i) at(m, in, i) = value(r, i);
  return m;
}
inline Memory apart(int r, std::int64_t in, std::int64_t out) {
  return memory_of(r, {0, in}, {in, out});
}
// all_reduce and broadcast: out is what goes in.
inline Memory inout(int r, std::int64_t count) {
  Memory m = memory_of(r, {0, count}, {0, count});
  m.in = {};
  return m;
}

struct Total {
  Traffic most{}, sum{};  // of the rank that does most of each, and of all ranks
  std::int64_t rounds = 0;
};

// Runs the plans; every rank's `in` must come out as it went in, except where it is `out`.
inline Total run(const std::vector<Plan>& plans, std::vector<Memory>& memory) {
  const std::vector<Memory> before = memory;
  PlanOracle<std::int64_t> oracle(plans, memory, kPoison);
  const std::string wrong = oracle.run();
  EXPECT_TRUE(wrong.empty()) << wrong;
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
    EXPECT_EQ(plans[r].name, plans[0].name) << "rank " << r << "'s plan is called as rank 0's";
  }
  return total;
}

// Rank r's output is f(r, i), for all r and i.
inline void expect_outs(std::vector<Memory>& memory,
                        const std::function<std::int64_t(int, std::int64_t)>& f) {
  for (int r = 0; r < static_cast<int>(memory.size()); ++r) {
    Memory& m = memory[static_cast<std::size_t>(r)];
    for (std::int64_t i = 0; i < m.out.count; ++i)
      ASSERT_EQ(at(m, m.out, i), f(r, i)) << "rank " << r << ", element " << i;
  }
}

// What rank r begins with in a call of `count` elements (as in Call), and element i of what it ends
// with. In place: the rank's input, or the root's, is part of its output or the other way round.
inline Memory begin_of(const Call& c, int r, int p, bool in_place) {
  const std::int64_t n = c.count, all = p * n;
  const bool root = r == c.peer;
  switch (c.op) {
    case CommOp::AllReduce:
      return inout(r, n);
    case CommOp::Broadcast:
      return root ? inout(r, n) : apart(r, 0, n);
    case CommOp::Reduce:
      return in_place && root ? memory_of(r, {0, n}, {0, n}) : apart(r, n, root ? n : 0);
    case CommOp::ReduceScatter:
      return in_place ? memory_of(r, {0, all}, {r * n, n}) : apart(r, all, n);
    case CommOp::AllGather:
      return in_place ? memory_of(r, {r * n, n}, {0, all}) : apart(r, n, all);
    case CommOp::Gather:
      return in_place && root ? memory_of(r, {r * n, n}, {0, all}) : apart(r, n, root ? all : 0);
    case CommOp::Scatter:
      return in_place && root ? memory_of(r, {0, all}, {r * n, n}) : apart(r, root ? all : 0, n);
    default:  // AllToAll
      return apart(r, all, all);
  }
}
inline std::int64_t end_of(const Call& c, int r, int p, std::int64_t i) {
  const std::int64_t n = c.count;
  switch (c.op) {
    case CommOp::AllReduce:
    case CommOp::Reduce:
      return sum(p, i);
    case CommOp::ReduceScatter:
      return sum(p, r * n + i);
    case CommOp::Broadcast:
      return value(c.peer, i);
    case CommOp::Scatter:
      return value(c.peer, r * n + i);
    case CommOp::AllToAll:
      return value(i / n, r * n + i % n);
    default:  // AllGather, Gather
      return value(i / n, i % n);
  }
}

// A call by all ranks that was run.
struct Ran {
  int p;
  std::int64_t n;
  int root;
  std::vector<Plan> plans{};
  Total total{};
  Traffic of(int r) const { return traffic_of(plans[static_cast<std::size_t>(r)]); }
};
// Runs it apart and in place: each rank ends with what the operation says.
inline Ran run_call(CommOp op, const PlanMaker& maker, int p, std::int64_t n, int root = -1) {
  Collective c = call(op, n, root);
  if (op == CommOp::AllToAll) {
    c.send_counts.assign(static_cast<std::size_t>(p), n);
    c.recv_counts = c.send_counts;
  }
  Ran ran{p, n, root, plans_of(maker, c, p)};
  for (const bool in_place : {false, true}) {
    auto memory = each_of(p, [&](int r) { return begin_of(c.call, r, p, in_place); });
    ran.total = run(ran.plans, memory);
    expect_outs(memory, [&](int r, std::int64_t i) { return end_of(c.call, r, p, i); });
  }
  return ran;
}
// The same for all sizes, counts and, if it has one, roots; then check(ran).
template <class Check>
void expect_done(CommOp op, const PlanMaker& maker, const Check& check) {
  const auto done = [&](int p, std::int64_t n, int root) {
    check(run_call(op, maker, p, n, root));
  };
  const bool has_root = op == CommOp::Broadcast || op == CommOp::Reduce || op == CommOp::Gather ||
                        op == CommOp::Scatter;
  if (has_root)
    for_sizes_counts_and_roots(done);
  else
    for_sizes_and_counts([&](int p, std::int64_t n) { done(p, n, -1); });
}

inline std::int64_t log2_ceil(int p) {
  std::int64_t log = 0;
  while ((1 << log) < p) ++log;
  return log;
}
inline std::int64_t chunk_count(std::int64_t n, int i, int p) {
  return chunk_of(Where::Out, n, i % p, p).count;
}

// Runs an all_reduce of `p` ranks with values that lose bits in every sum, so that another order of
// additions gives other bits. Returns what each rank ends with.
inline float losing_bits(int r, int i) {
  return static_cast<float>((r * 7919 + i * 104729) % 1009) / 7;
}
inline std::vector<std::vector<float>> sums_that_lose_bits(const PlanMaker& maker, int p,
                                                           int count = 1000) {
  const auto plans = plans_of(maker, call(CommOp::AllReduce, count), p);
  const auto n = static_cast<std::size_t>(count);
  auto memory = each_of(p, [&](int r) {
    RankMemory<float> m{std::vector<float>(n), {}, {0, count}};
    for (int i = 0; i < count; ++i) m.values[static_cast<std::size_t>(i)] = losing_bits(r, i);
    return m;
  });
  const std::string wrong = PlanOracle<float>(plans, memory, 0).run();
  EXPECT_TRUE(wrong.empty()) << wrong;
  return each_of(p, [&](int r) {
    std::vector<float>& values = memory[static_cast<std::size_t>(r)].values;
    return std::vector<float>(values.begin(), values.begin() + count);  // without scratch
  });
}

// all_to_all_v, in which rank a sends (3a + 5b) % 4 elements to rank b: some nothing, some to
// themselves only.
inline Total swap_unequal_counts(const PlanMaker& maker, int p) {
  const auto count = [](int a, int b) { return std::int64_t{(3 * a + 5 * b) % 4}; };
  const auto begin = [&](int a, int b) {  // of the elements for b in a's input
    std::int64_t sum = 0;
    for (int k = 0; k < b; ++k) sum += count(a, k);
    return sum;
  };
  const auto plans = each_of(p, [&](int r) {
    Collective c = call(CommOp::AllToAllV, 0);
    c.send_counts = each_of(p, [&](int k) { return count(r, k); });
    c.recv_counts = each_of(p, [&](int k) { return count(k, r); });
    return maker(c, r, p);
  });
  std::vector<std::vector<std::int64_t>> expected(static_cast<std::size_t>(p));
  auto memory = each_of(p, [&](int r) {
    std::vector<std::int64_t>& mine = expected[static_cast<std::size_t>(r)];
    for (int k = 0; k < p; ++k)
      for (std::int64_t i = 0; i < count(k, r); ++i) mine.push_back(value(k, begin(k, r) + i));
    return apart(r, begin(r, p), static_cast<std::int64_t>(mine.size()));
  });
  const Total total = run(plans, memory);
  expect_outs(memory, [&](int r, auto i) {
    return expected[static_cast<std::size_t>(r)][static_cast<std::size_t>(i)];
  });
  for (int r = 0; r < p; ++r)
    EXPECT_EQ(traffic_of(plans[static_cast<std::size_t>(r)]).elements, begin(r, p) - count(r, r));
  return total;
}

}  // namespace aisc::plan_runs
