// Signs, scales, and errors that are not lost; and the mean over ranks that sends only these.
#include "03_data_parallel/signs.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/comm/launch.h"
#include "tests/support/drawn.h"
#include "tests/support/error_says.h"
#include "tests/support/late_comm.h"
#include "tests/support/numbers.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

using Floats = std::vector<float>;

struct Compressed {
  Compressed(const Floats& x, Floats& error) : bits((x.size() + 7) / 8, 0xff), numbers(x.size()) {
    scale = compress(bits, x, error);
    decompress(numbers, bits, scale);
  }
  std::vector<std::uint8_t> bits;
  float scale = 0;
  Floats numbers;
};

Floats drawn_numbers(std::size_t n, const char* name) {
  const Philox random(test_seed(), name);
  Floats x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(random.normal(i));
  return x;
}

::testing::AssertionResult floats_are(const std::string& where, const Floats& found,
                                      const std::vector<double>& expected,
                                      const std::vector<KnownMistake>& mistakes = {}) {
  CpuDevice device;
  const std::vector<double> numbers(found.begin(), found.end());
  return numbers_are(
      where, from_doubles(numbers, {static_cast<std::int64_t>(numbers.size())}, DType::F64, device),
      expected, mistakes);
}

TEST(Compress, FourNumbersByHand) {
  Floats error(4);
  const Compressed out({4, -1, 2, -1}, error);
  EXPECT_TRUE(floats_are("4, -1, 2, -1: scale", {out.scale}, {2},
                         {{"it were the root of the mean square", {std::sqrt(22 / 4.0)}},
                          {"it were the sum, not divided by 4", {8}}}));
  EXPECT_TRUE(floats_are("4, -1, 2, -1, decompressed: number", out.numbers, {2, -2, 2, -2},
                         {{"signs were taken of what is left", {2, 2, 2, 2}}}));
  EXPECT_TRUE(floats_are("4, -1, 2, -1: error", error, {2, 1, 0, 1},
                         {{"what was sent were kept, too", {4, -1, 2, -1}},
                          {"nothing were kept of what was lost", {0, 0, 0, 0}}}));
}

TEST(Compress, WhatWasLostIsSentTheNextTime) {
  Floats error{2, -1, 0, 1};
  const Compressed out({0, 0, 0, 0}, error);
  const std::string where = "errors 2, -1, 0, 1 are left, x is 0, 0, 0, 0: ";
  EXPECT_TRUE(floats_are(where + "scale", {out.scale}, {1},
                         {{"the errors of the last time were dropped", {0}}}));
  EXPECT_TRUE(floats_are(where + "sent", out.numbers, {1, -1, 1, 1},
                         {{"the errors of the last time were dropped", {0, 0, 0, 0}},
                          {"signs were those of x without its errors", {1, 1, 1, 1}}}));
  EXPECT_TRUE(floats_are(where + "error", error, {1, 0, -1, 0}));
}

// However often: what is sent and what is left add up to what was given.
TEST(Compress, LosesNothing) {
  for (const std::int64_t n :
       {std::int64_t{1}, std::int64_t{8}, drawn("numbers of Compress", 9, kSignBlock)}) {
    const auto count = static_cast<std::size_t>(n);
    std::vector<double> given(count), sent(count);
    Floats error(count);
    for (int step = 0; step < 5; ++step) {
      const Floats x = drawn_numbers(count, std::to_string(step).c_str());
      const Compressed out(x, error);
      for (std::size_t i = 0; i < count; ++i) given[i] += x[i], sent[i] += out.numbers[i];
    }
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_NEAR(sent[i] + error[i], given[i], 1e-5)
          << "number " << i << " of " << n << ", 5 times: what was sent and what is left";
  }
}

// Of all scales the mean of the absolute values leaves the least squared error.
TEST(Compress, NoOtherScaleIsNearer) {
  const Floats x = drawn_numbers(300, "x");
  Floats error(300);
  const Compressed out(x, error);
  const auto squares = [&](double scale) {
    double sum = 0;
    for (const float number : x) sum += std::pow(number - std::copysign(scale, number), 2);
    return sum;
  };
  EXPECT_LT(squares(out.scale), squares(out.scale * 1.01));
  EXPECT_LT(squares(out.scale), squares(out.scale * 0.99));
}

TEST(Compress, NoNumbersAreNoNaN) {
  Floats error;
  EXPECT_EQ(Compressed({}, error).scale, 0);
}

// All ranks' numbers and errors after a call, on `n` numbers.
struct Called {
  std::vector<Floats> x, worker, server;
  CommStats stats;
};

Called mean_of(int ranks, std::int64_t n, int calls) {
  const auto size = static_cast<std::size_t>(ranks);
  Called called{
      std::vector<Floats>(size), std::vector<Floats>(size), std::vector<Floats>(size), {}};
  launch(late(ranks), [&](const Rank& rank) {
    const auto zeros = [&](std::int64_t count) {
      return Tensor::zeros({count}, DType::F32, rank.device);
    };
    const SignErrors errors{zeros(n), zeros(n / ranks)};
    const std::vector<std::int64_t> used(static_cast<std::size_t>(n / kSignBlock), kSignBlock);
    const auto r = static_cast<std::size_t>(rank.world.rank());
    Tensor x;
    for (int call = 0; call < calls; ++call) {
      x = random_tensor({n}, DType::F32, rank.device,
                        "rank " + std::to_string(r) + " call " + std::to_string(call));
      mean_by_signs(rank, x, used, errors);
    }
    const auto copy = [](const Tensor& t) {
      return Floats(t.values<float>().begin(), t.values<float>().end());
    };
    called.x[r] = copy(x), called.worker[r] = copy(errors.worker);
    called.server[r] = copy(errors.server);
    if (r == 0) called.stats = rank.world.stats();
  });
  for (const Floats& x : called.x) EXPECT_EQ(x, called.x[0]) << ranks << " ranks: the same on all";
  return called;
}

// What was sent in all calls, with what all ranks still hold back, is the mean of all that was
// given.
TEST(MeanBySigns, LosesNothing) {
  constexpr int kCalls = 3;
  for (const int ranks : {1, 2, 3, 4}) {
    const std::int64_t n = ranks * 2 * kSignBlock;
    std::vector<double> sent(static_cast<std::size_t>(n)), given(sent.size());
    CpuDevice host;
    Called last;
    for (int call = 1; call <= kCalls; ++call) {
      last = mean_of(ranks, n, call);
      for (std::size_t i = 0; i < sent.size(); ++i) sent[i] += last.x[0][i];
      for (int r = 0; r < ranks; ++r) {
        const auto x = to_doubles(
            random_tensor({n}, DType::F32, host,
                          "rank " + std::to_string(r) + " call " + std::to_string(call - 1)));
        for (std::size_t i = 0; i < sent.size(); ++i) given[i] += x[i] / ranks;
      }
    }
    const auto shard = static_cast<std::size_t>(n / ranks);
    for (std::size_t i = 0; i < sent.size(); ++i) {
      double held = last.server[i / shard][i % shard];
      for (const Floats& worker : last.worker) held += worker[i] / ranks;
      ASSERT_NEAR(sent[i] + held, given[i], 1e-4) << ranks << " ranks, number " << i;
    }
  }
}

// n/8 bytes of signs to servers, a rank's share of n/8 back, and 4 bytes for each 1024 numbers.
TEST(MeanBySigns, SendsASixteenthOfBF16AndALittle) {
  constexpr std::int64_t n = 4 * 2 * 1024;
  const Called called = mean_of(4, n, 1);
  const std::int64_t signs_and_scales = n / 8 + 4 * n / 1024;
  EXPECT_EQ(called.stats[CommOp::AllToAll].payload_bytes, signs_and_scales);
  EXPECT_EQ(called.stats[CommOp::AllGather].payload_bytes, signs_and_scales / 4);
  EXPECT_EQ(called.stats[CommOp::AllReduce].calls, 0);
}

TEST(MeanBySigns, LeavesWhatIsNotUsed) {
  launch({.ranks = 2, .bind = false}, [](const Rank& rank) {
    const Tensor x = from_doubles(std::vector<double>(2048, 5), {2048}, DType::F32, rank.device);
    const SignErrors errors{Tensor::zeros({2048}, DType::F32, rank.device),
                            Tensor::zeros({1024}, DType::F32, rank.device)};
    write_doubles(x.view().flat(0, 3), {1, -2, 3});
    mean_by_signs(rank, x, std::vector<std::int64_t>{3, 0}, errors);
    std::vector<double> expected(2048, 5);
    expected[0] = 2, expected[1] = -2, expected[2] = 2;
    EXPECT_EQ(to_doubles(x), expected) << "the mean of 1, 2 and 3, with their signs";
  });
}

TEST(SignsGiven, NumbersMustFitTheRanks) {
  EXPECT_TRUE(error_says([] { mean_of(2, 1024, 1); }, {"1024 numbers", "2 ranks times 1024"}));
}

}  // namespace
}  // namespace aisc
