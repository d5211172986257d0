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

struct ConjugateCase {
  Conjugate which;
  Direction direction;
  const char* name;
  bool sums;
};
constexpr ConjugateCase kConjugates[] = {{Conjugate::F, Direction::Forward, "f forward", false},
                                         {Conjugate::F, Direction::Backward, "f backward", true},
                                         {Conjugate::G, Direction::Forward, "g forward", true},
                                         {Conjugate::G, Direction::Backward, "g backward", false}};

// body(rank, tp, case) for each of the four, on two groups of t ranks.
void on_each(int t,
             const std::function<void(const Rank&, Communicator&, const ConjugateCase&)>& body) {
  for (const ConjugateCase& c : kConjugates)
    split::on_groups(t, [&](const Rank& rank, Communicator& tp) { body(rank, tp, c); });
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

void expect_all_cases(int t, std::int64_t count) {
  on_each(t, [&](const Rank& rank, Communicator& tp, const ConjugateCase& c) {
    const int r = rank.world.rank();
    const std::vector<double> own = of_rank(r, count);
    const std::vector<double> sum = sum_of(r / t * t, t, count);
    std::vector<KnownMistake> mistakes;
    if (t > 1 && c.sums)
      mistakes = {
          {"nothing is summed: are f and g, or the directions, swapped?", own},
          {"the sum was summed once more: every number is as often in it as there are ranks",
           sum_of(r / t * t, t, count, t)},
          {"all ranks of the world were summed and not those of tp", sum_of(0, 2 * t, count)}};
    if (t > 1 && !c.sums)
      mistakes = {{"it was summed: are f and g, or the directions, swapped?", sum}};
    const Tensor y =
        through(c.which, c.direction, tp, from_doubles(own, {count}, DType::F64, rank.device));
    EXPECT_TRUE(numbers_are(fmt::format("{}, {} ranks, rank {}: numbers", c.name, t, tp.rank()), y,
                            c.sums ? sum : own, mistakes));
  });
}

// Rank 0 has 1 and 10, rank 1 has 2 and 20: the sums are 3 and 30.
TEST(FAndG, TwoRanksByHand) { expect_all_cases(2, 2); }

TEST(FAndG, AnyNumberOfRanksAndSizes) {
  for (const int t : {1, 2, 3, 4, 7})
    expect_all_cases(t, drawn(fmt::format("numbers of f and g on {} ranks", t), 1, 40));
}

TEST(FAndG, ATensorThatOthersHoldStaysAsItIs) {
  on_each(2, [](const Rank& rank, Communicator& tp, const ConjugateCase& c) {
    const Tensor x = from_doubles({1, 2, 3}, {3}, DType::F64, rank.device);
    const Tensor y = through(c.which, c.direction, tp, x.share());
    EXPECT_TRUE(numbers_are(fmt::format("{}, rank {}: what it was given", c.name, tp.rank()), x,
                            {1, 2, 3},
                            {{"the sum was written into a tensor that others hold, too: a residual "
                              "connection still adds it",
                              {2, 4, 6}}}));
  });
}

TEST(FAndG, ATensorThatNobodyElseHoldsIsNotCopied) {
  on_each(2, [](const Rank& rank, Communicator& tp, const ConjugateCase& c) {
    Tensor x = from_doubles({1, 2, 3}, {3}, DType::F64, rank.device);
    const void* memory = x.view().raw();
    const Tensor y = through(c.which, c.direction, tp, std::move(x));
    EXPECT_EQ(y.view().raw(), memory) << c.name << ": the result is in other memory than x was";
  });
}

TEST(FAndG, SumOnceWhereTheySumAndSendNothingElse) {
  on_each(3, [](const Rank& rank, Communicator& tp, const ConjugateCase& c) {
    SCOPED_TRACE(c.name);
    through(c.which, c.direction, tp, from_doubles({1, 2, 3, 4}, {2, 2}, DType::F32, rank.device));
    split::expect_all_reduces(tp, c.sums ? 1 : 0, c.sums ? 16 : 0);
  });
}

TEST(FAndG, ASumIsUnderWayUntilItIsWaitedFor) {
  const auto logs = split::logs_of(2, [](const Rank& rank, split::EventLog& log) {
    for (const ConjugateCase& c : kConjugates) {
      Passing passing = begin_through(c.which, c.direction, rank.world,
                                      from_doubles({1, 2, 3}, {3}, DType::F64, rank.device));
      log.push_back("what does not need it");
      const Tensor y = wait_for(rank, std::move(passing), "f or g");
      EXPECT_EQ(to_doubles(y),
                c.sums ? (std::vector<double>{2, 4, 6}) : (std::vector<double>{1, 2, 3}));
    }
  });
  const split::EventLog f_forward{"what does not need it"},
      summed{"all_reduce of 3 begins", "what does not need it", "all_reduce of 3 is over"};
  for (const split::EventLog& log : logs)
    EXPECT_EQ(log, split::joined({f_forward, summed, summed, f_forward}))
        << "f forward and backward, then g forward and backward";
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
