// f and g, by themselves: in which direction which of them sums.
#include "06_tensor_parallel/f_and_g.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/06_tensor_parallel/event_log.h"
#include "tests/06_tensor_parallel/split_layers.h"
#include "tests/support/drawn.h"
#include "tests/support/numbers.h"

namespace aisc {
namespace {

const char* name_of(Conjugate which) { return which == Conjugate::F ? "f" : "g"; }
const char* name_of(Direction d) { return d == Direction::Forward ? "forward" : "backward"; }

constexpr Conjugate kBoth[] = {Conjugate::F, Conjugate::G};
constexpr Direction kDirections[] = {Direction::Forward, Direction::Backward};

bool sums(Conjugate which, Direction direction) {
  return (which == Conjugate::F && direction == Direction::Backward) ||
         (which == Conjugate::G && direction == Direction::Forward);
}

// What rank r of the world has: element i is (r + 1) 10^i in the first.
std::vector<double> of_rank(int r, std::int64_t count) {
  std::vector<double> x;
  for (std::int64_t i = 0; i < count; ++i)
    x.push_back(static_cast<double>((r + 1) * (i % 2 == 0 ? 1 : 10) + i / 2));
  return x;
}

// Each rank of `first` .. `first + ranks` counts so often.
std::vector<double> sum_of(int first, int ranks, std::int64_t count, int times = 1) {
  std::vector<double> sum(static_cast<std::size_t>(count));
  for (int r = first; r < first + ranks; ++r)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += times * of_rank(r, count)[i];
  return sum;
}

// All four cases, on two groups of t ranks.
void expect_all_cases(int t, std::int64_t count) {
  for (const Conjugate which : kBoth)
    for (const Direction direction : kDirections)
      split::on_groups(t, [&](const Rank& rank, Communicator& tp) {
        const int r = rank.world.rank();
        const std::vector<double> own = of_rank(r, count);
        const std::vector<double> sum = sum_of(r / t * t, t, count);
        std::vector<KnownMistake> mistakes;
        if (t > 1 && sums(which, direction))
          mistakes = {
              {"nothing is summed: are f and g, or the directions, swapped?", own},
              {"the sum was summed once more: every number is as often in it as there are ranks",
               sum_of(r / t * t, t, count, t)},
              {"all ranks of the world were summed and not those of tp", sum_of(0, 2 * t, count)}};
        if (t > 1 && !sums(which, direction))
          mistakes = {{"it was summed: are f and g, or the directions, swapped?", sum}};
        const Tensor y =
            through(which, direction, tp, from_doubles(own, {count}, DType::F64, rank.device));
        EXPECT_TRUE(numbers_are(fmt::format("{} {}, {} ranks, rank {}: numbers", name_of(which),
                                            name_of(direction), t, tp.rank()),
                                y, sums(which, direction) ? sum : own, mistakes));
      });
}

// Rank 0 has 1 and 10, rank 1 has 2 and 20: the sums are 3 and 30.
TEST(FAndG, TwoRanksByHand) { expect_all_cases(2, 2); }

TEST(FAndG, AnyNumberOfRanksAndSizes) {
  for (const int t : {1, 2, 3, 4, 7})
    expect_all_cases(t, drawn(fmt::format("numbers of f and g on {} ranks", t), 1, 40));
}

TEST(FAndG, ATensorThatOthersHoldStaysAsItIs) {
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    for (const Conjugate which : kBoth)
      for (const Direction direction : kDirections) {
        const Tensor x = from_doubles({1, 2, 3}, {3}, DType::F64, rank.device);
        const Tensor y = through(which, direction, tp, x.share());
        EXPECT_TRUE(numbers_are(fmt::format("{} {}, rank {}: what it was given", name_of(which),
                                            name_of(direction), tp.rank()),
                                x, {1, 2, 3},
                                {{"the sum was written into a tensor that others hold, too: a "
                                  "residual connection still adds it",
                                  {2, 4, 6}}}));
      }
  });
}

TEST(FAndG, ATensorThatNobodyElseHoldsIsNotCopied) {
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    for (const Conjugate which : kBoth)
      for (const Direction direction : kDirections) {
        Tensor x = from_doubles({1, 2, 3}, {3}, DType::F64, rank.device);
        const void* memory = x.view().raw();
        const Tensor y = through(which, direction, tp, std::move(x));
        EXPECT_EQ(y.view().raw(), memory) << name_of(which) << " " << name_of(direction)
                                          << ": the result is in other memory than x was";
      }
  });
}

TEST(FAndG, SumOnceWhereTheySumAndSendNothingElse) {
  split::on_groups(3, [](const Rank& rank, Communicator& tp) {
    for (const Conjugate which : kBoth)
      for (const Direction direction : kDirections) {
        const CommStats before = tp.stats();
        through(which, direction, tp, from_doubles({1, 2, 3, 4}, {2, 2}, DType::F32, rank.device));
        const CommStats after = tp.stats();
        const std::string where = fmt::format("{} {}", name_of(which), name_of(direction));
        const int expected = sums(which, direction) ? 1 : 0;
        EXPECT_EQ(after[CommOp::AllReduce].calls - before[CommOp::AllReduce].calls, expected)
            << where << ": all-reduces";
        EXPECT_EQ(after[CommOp::AllReduce].payload_bytes - before[CommOp::AllReduce].payload_bytes,
                  16 * expected)
            << where << ": bytes";
        std::int64_t others = 0;
        for (std::size_t op = 0; op < after.rows.size(); ++op)
          if (op != static_cast<std::size_t>(CommOp::AllReduce))
            others += after.rows[op].calls - before.rows[op].calls;
        EXPECT_EQ(others, 0) << where << ": other operations of tp";
      }
  });
}

TEST(FAndG, ASumIsUnderWayUntilItIsWaitedFor) {
  std::vector<split::EventLog> logs(2);
  LaunchOptions options{.ranks = 2, .bind = false};
  options.internals.decorate = [&](std::unique_ptr<Communicator> inner) {
    split::EventLog& log = logs[static_cast<std::size_t>(inner->rank())];
    return std::make_unique<split::LoggedComm>(std::move(inner), log);
  };
  launch(options, [&](const Rank& rank) {
    split::EventLog& log = logs[static_cast<std::size_t>(rank.world.rank())];
    for (const Conjugate which : kBoth)
      for (const Direction direction : kDirections) {
        Passing passing = begin_through(which, direction, rank.world,
                                        from_doubles({1, 2, 3}, {3}, DType::F64, rank.device));
        log.push_back("what does not need it");
        const Tensor y = wait_for(rank, std::move(passing), "f or g");
        EXPECT_EQ(to_doubles(y), sums(which, direction) ? (std::vector<double>{2, 4, 6})
                                                        : (std::vector<double>{1, 2, 3}));
      }
  });
  const split::EventLog f_forward{"what does not need it"},
      summed{"all_reduce of 3 begins", "what does not need it", "all_reduce of 3 is over"};
  split::EventLog expected;
  for (const split::EventLog& part : {f_forward, summed, summed, f_forward})
    expected.insert(expected.end(), part.begin(), part.end());
  for (const split::EventLog& log : logs)
    EXPECT_EQ(log, expected) << "f forward and backward, then g forward and backward";
}

TEST(FAndG, AsLayersKeepNothingAndAreEachOthersBackward) {
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    ConjugateLayer f(rank, tp, "f", Conjugate::F), g(rank, tp, "g", Conjugate::G);
    const auto own = [&] {
      return from_doubles(of_rank(tp.rank(), 4), {2, 2}, DType::F64, rank.device);
    };
    Saved saved;
    EXPECT_EQ(to_doubles(f.forward(own(), saved, {})), of_rank(tp.rank(), 4));
    EXPECT_EQ(to_doubles(f.backward(own(), saved, {})), sum_of(0, 2, 4));
    EXPECT_EQ(to_doubles(g.forward(own(), saved, {})), sum_of(0, 2, 4));
    EXPECT_EQ(to_doubles(g.backward(own(), saved, {})), of_rank(tp.rank(), 4));
    EXPECT_EQ(saved.size(), 0u) << "neither needs anything in backward";
    EXPECT_EQ(f.parameters().size() + g.parameters().size(), 0u);
    EXPECT_EQ(f.forward(own(), saved, {}).shape(), (Shape{2, 2}));
  });
}

}  // namespace
}  // namespace aisc
