// The loss over words of which each rank has some: log-sum-exp as it is written, losses and
// gradients that stand on it.
#include "06_tensor_parallel/vocab_parallel_loss.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/nn/cross_entropy.h"
#include "tests/06_tensor_parallel/split_layers.h"
#include "tests/support/drawn.h"
#include "tests/support/message_of.h"
#include "tests/support/numbers.h"

namespace aisc {
namespace {

using Index = std::int64_t;
using Numbers = std::vector<double>;
constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Of what each rank has, one number a token.
void expect_log_sum_exp(const char* what, const std::vector<Numbers>& own, const Numbers& expected,
                        const std::function<std::vector<KnownMistake>(const Numbers&)>& mistakes) {
  const int t = static_cast<int>(own.size());
  const auto count = static_cast<Index>(expected.size());
  split::on_groups(t, [&](const Rank& rank, Communicator& tp) {
    const Numbers& mine = own[static_cast<std::size_t>(tp.rank())];
    const Tensor x = from_doubles(mine, {count}, DType::F64, rank.device);
    const Tensor all = log_sum_exp_of_all(tp, x);
    const std::string where =
        fmt::format("{} of {} ranks, rank {}: log-sum-exp", what, t, tp.rank());
    EXPECT_TRUE(numbers_are(where, all, expected, mistakes(mine)));
    EXPECT_EQ(to_doubles(x), mine) << where << ": what it was given has changed";
  });
}

// One token: rank 0 has ln 3, rank 1 ln 7, and ln 10 is the whole.
TEST(VocabParallelCrossEntropy, LogSumExpOfTwoRanksByHand) {
  expect_log_sum_exp(
      "ln 3 and ln 7", {{std::log(3)}, {std::log(7)}}, {std::log(10)},
      [](const Numbers& own) -> std::vector<KnownMistake> {
        return {{"nothing was sent: this is the rank's own", own},
                {"each rank subtracted its own maximum, and summed what is not "
                 "related to the same number",
                 {own[0] + std::log(2)}},
                {"the maximum was subtracted and not added again", {std::log(10. / 7)}},
                {"a sum or a maximum was read before it was there: wait for it", {kNoNumber}},
                {"the logarithms were added, and not what they are of", {std::log(21)}},
                {"the ranks of the world were summed and not those of tp", {std::log(20)}}};
      });
}

// exp(1000) is infinite, and exp(-1000) is 0.
TEST(VocabParallelCrossEntropy, LogSumExpOfLogitsOf1000ByHand) {
  expect_log_sum_exp("1000 and 998, -1000 twice, 1000 and 0",
                     {{1000, -1000, 1000}, {998, -1000, 0}},
                     {1000 + std::log(1 + std::exp(-2)), -1000 + std::log(2), 1000},
                     [](const Numbers&) -> std::vector<KnownMistake> {
                       return {{"exp was taken of the numbers as they are: subtract the largest of "
                                "all ranks first",
                                {kInfinity, -kInfinity, kInfinity}},
                               {"the ranks' numbers were added where their maximum is asked for: "
                                "all_reduce sums unless it is told ReduceOp::Max",
                                {-kInfinity, kInfinity, 1000}}};
                     });
}

// Rank 1 has no word: minus infinity adds nothing.
TEST(VocabParallelCrossEntropy, LogSumExpOfARankWithoutAWordByHand) {
  expect_log_sum_exp("ln 3, minus infinity, ln 7", {{std::log(3)}, {-kInfinity}, {std::log(7)}},
                     {std::log(10)}, [](const Numbers&) -> std::vector<KnownMistake> {
                       return {
                           {"minus infinity was subtracted from minus infinity, which is no "
                            "number: subtract the maximum of all ranks, and from nothing else",
                            {kNoNumber}}};
                     });
}

TEST(VocabParallelCrossEntropy, LogSumExpOfDrawnNumbers) {
  for (const int t : {1, 2, 3, 4, 7}) {
    const Index count = drawn(fmt::format("tokens of log-sum-exp on {} ranks", t), 1, 30);
    std::vector<Numbers> own;
    Numbers expected(static_cast<std::size_t>(count));
    CpuDevice host;
    for (int r = 0; r < t; ++r) {
      own.push_back(to_doubles(
          random_tensor({count}, DType::F64, host, fmt::format("own {} of {}", r, t), 3)));
      for (std::size_t n = 0; n < expected.size(); ++n) expected[n] += std::exp(own.back()[n]);
    }
    for (double& number : expected) number = std::log(number);
    expect_log_sum_exp("drawn numbers", own, expected,
                       [](const Numbers&) { return std::vector<KnownMistake>{}; });
  }
}

ConstView view_of(const double& number, Device& device) {
  return {&number, {1}, DType::F64, device};
}

// Four words: rank 0 has ln 1 and ln 2, rank 1 has ln 4 and ln 3. The target is word 1.
TEST(VocabParallelCrossEntropy, FourWordsOnTwoRanksByHand) {
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    const bool first = tp.rank() == 0;
    const VocabParallelCrossEntropy split(rank, tp, {.begin = first ? 0 : 2, .all = 4}, 4);
    Saved saved;
    const double loss = split.forward(
        from_doubles(first ? Numbers{std::log(1), std::log(2)} : Numbers{std::log(4), std::log(3)},
                     {1, 2}, DType::F64, rank.device),
        ids_tensor({1}, rank.device), saved, {});
    const std::string where = fmt::format("2 ranks, rank {}: ", tp.rank());
    EXPECT_TRUE(numbers_are(
        where + "loss", view_of(loss, rank.device), {std::log(10) - std::log(2)},
        {{"the rank of the target took the log-sum-exp of its own words", {std::log(1.5)}},
         {"the rank without the target added to the loss, too", {std::log(5) + std::log(10. / 7)}},
         {"no rank took the target for its own", {0}}}));
    EXPECT_TRUE(numbers_are(
        where + "gradient", split.backward(saved, 1),
        first ? Numbers{0.1, -0.8} : Numbers{0.4, 0.3},
        {{"the target of another rank were ignored: its token counts, and the rank's probabilities "
          "are its gradient",
          {0, 0}},
         {"the probabilities are of the rank's own words alone",
          first ? Numbers{1. / 3, -1. / 3} : Numbers{4. / 7, 3. / 7}}}));
    EXPECT_EQ(saved.size(), 0u);
  });
}

TEST(VocabParallelCrossEntropy, AnIgnoredTargetHasNoLossAndNoGradient) {
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    const VocabParallelCrossEntropy split(rank, tp, {.begin = 2 * tp.rank(), .all = 4}, 4);
    Saved saved;
    const double loss = split.forward(from_doubles({0, 0, 7, 8}, {2, 2}, DType::F64, rank.device),
                                      ids_tensor({3, -1}, rank.device), saved, {});
    const std::string where = fmt::format("2 ranks, rank {}: ", tp.rank());
    EXPECT_TRUE(numbers_are(where + "loss of words that are equally likely, and of nothing",
                            view_of(loss, rank.device), {std::log(4)}));
    EXPECT_TRUE(numbers_are(where + "gradient", split.backward(saved, 2),
                            tp.rank() == 0 ? Numbers{0.5, 0.5, 0, 0} : Numbers{0.5, -1.5, 0, 0}));
  });
}

// 5 rows a text, which ranks need not have equally many of; -inf is a word that is never drawn.
TEST(VocabParallelLogitsGiven, AreGatheredOfAllRanks) {
  for (const int t : {1, 2, 3, 4})
    split::on_groups(t, [&](const Rank& rank, Communicator& tp) {
      constexpr Index kTextRows = 5;
      const Index begin = kTextRows * tp.rank() / t, end = kTextRows * (tp.rank() + 1) / t;
      const Numbers all{1.5, -kInfinity, -3, 0, 4, 10, 11, 12, 13, 14};
      Numbers own;
      for (Index n = 0; n < 2; ++n)
        own.insert(own.end(), all.begin() + n * kTextRows + begin,
                   all.begin() + n * kTextRows + end);
      const VocabParallelCrossEntropy split(rank, tp, {.begin = begin, .all = kTextRows}, 4);
      const Tensor gathered =
          split.all_logits(from_doubles(own, {2, end - begin}, DType::F64, rank.device));
      EXPECT_EQ(gathered.shape(), (Shape{2, kTextRows}));
      EXPECT_EQ(to_doubles(gathered), all) << t << " ranks, rank " << tp.rank();
    });
}

struct LossCase {
  Index words = 0, rows = 0, tokens = 0;
  DType dtype = DType::F64;
};

// Logits in padding are as large as the others: whoever counts them finds another loss.
void expect_serial(int t, const LossCase& c) {
  split::on_groups(t, [&](const Rank& rank, Communicator& tp) {
    const Index begin = c.rows * tp.rank() / t, end = c.rows * (tp.rank() + 1) / t;
    Tensor whole = random_tensor({1, c.tokens, c.rows}, c.dtype, rank.device, "logits", 3);
    std::vector<std::int32_t> ids = random_ids(c.tokens, c.words, "targets");
    if (ids.size() > 2) ids[1] = -1;
    const Tensor targets = ids_tensor(ids, rank.device).reshaped({1, c.tokens});
    const auto own_of = [&](const Tensor& all) {
      Numbers own;
      const Numbers numbers = to_doubles(all);
      for (Index i = 0; i < c.tokens * c.rows; ++i)
        if (i % c.rows >= begin && i % c.rows < end)
          own.push_back(numbers[static_cast<std::size_t>(i)]);
      return own;
    };
    Tensor mine = from_doubles(own_of(whole), {1, c.tokens, end - begin}, c.dtype, rank.device);
    Saved of_serial, of_split;
    const CrossEntropy serial(rank, c.words);
    const double expected = serial.forward(std::move(whole), targets, of_serial, {});
    const VocabParallelCrossEntropy split(rank, tp, {.begin = begin, .all = c.rows}, c.words);
    const double loss = split.forward(std::move(mine), targets, of_split, {});

    const double tolerance = c.dtype == DType::F64 ? 1e-12 : 1e-5;
    const std::string where =
        fmt::format("{} words in {} rows on {} ranks, {} tokens in {}, rank {}: ", c.words, c.rows,
                    t, c.tokens, name_of(c.dtype), tp.rank());
    EXPECT_TRUE(
        numbers_are(where + "loss", view_of(loss, rank.device), {expected},
                    {{"a rank without a word added to the loss of another rank's target: its own "
                      "log-sum-exp is minus infinity",
                      {kInfinity}}},
                    tolerance));
    EXPECT_TRUE(numbers_are(where + "gradient", split.backward(of_split, 0.5),
                            own_of(serial.backward(of_serial, 0.5)), {}, tolerance));
  });
}

TEST(VocabParallelCrossEntropy, IsTheSerialOneOnAnyNumberOfRanks) {
  for (const int t : {1, 2, 3, 4, 7}) {
    const auto size = [&](const char* what, Index least, Index most) {
      return drawn(fmt::format("{} of the loss on {} ranks", what, t), least, most);
    };
    LossCase c{.words = size("words", t, 60), .tokens = size("tokens", 1, 20)};
    c.rows = c.words + size("padding", 0, 9);
    expect_serial(t, c);
    c.dtype = DType::F32;
    expect_serial(t, c);
  }
}

// Four parts of two rows: rank 1 has one word and padding, ranks 2 and 3 have padding alone.
TEST(VocabParallelCrossEntropy, ARankMayHavePaddingAlone) {
  expect_serial(4, {.words = 3, .rows = 8, .tokens = 5});
}

TEST(VocabParallelCrossEntropy, SendsTwoNumbersATokenAndOneForTheSum) {
  for (const int t : {1, 2, 3, 4})
    split::on_groups(t, [](const Rank& rank, Communicator& tp) {
      const VocabParallelCrossEntropy split(rank, tp, {.begin = 4 * tp.rank(), .all = 16}, 13);
      Saved saved;
      split.forward(random_tensor({2, 5, 4}, DType::F64, rank.device, "logits"),
                    ids_tensor(random_ids(10, 4, "targets"), rank.device).reshaped({2, 5}), saved,
                    {});
      // A maximum and a sum for each of 10 tokens, and the sum of the losses: not V logits a token.
      split::expect_all_reduces(tp, 3, (2 * 10 + 1) * 8);
      split.backward(saved, 1);
      split::expect_all_reduces(tp, 3, (2 * 10 + 1) * 8);
    });
}

// --- given -------------------------------------------------------------------------------------

// A rank has two words, and a target of the other rank is no mistake.
TEST(VocabParallelLossGiven, SaysWhichTargetIsNoWord) {
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    const VocabParallelCrossEntropy split(rank, tp, {.begin = 2 * tp.rank(), .all = 4}, 4);
    Saved saved;
    Tensor logits = random_tensor({2, 2}, DType::F64, rank.device, "logits");
    const Tensor targets = ids_tensor({3, 4}, rank.device);
    EXPECT_EQ(message_of([&] { split.forward(std::move(logits), targets, saved, {}); }),
              "cross_entropy: target[1] is 4, expected -1 <= target < 4");
  });
}

}  // namespace
}  // namespace aisc
