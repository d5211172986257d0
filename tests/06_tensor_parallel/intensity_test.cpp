// What a rank's part of a product computes and moves, and how many ranks that allows.
#include "06_tensor_parallel/intensity.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "common/model/machine.h"
#include "common/ops/ops.h"
#include "tests/support/drawn.h"
#include "tests/support/message_of.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

using Index = std::int64_t;

SplitProduct square(Index n, DType dtype = DType::BF16) { return {n, n, n, dtype}; }

std::string text(const SplitProduct& p) {
  return fmt::format("M {}, N {}, K {} in {}", p.M, p.N, p.K, name_of(p.dtype));
}

// What somebody may have done who found this number.
std::string usual_cause(const SplitProduct& p, double balance, Index found, Index expected) {
  const double element = static_cast<double>(size_of(p.dtype));
  const double M = static_cast<double>(p.M), N = static_cast<double>(p.N),
               K = static_cast<double>(p.K);
  const auto is = [&](double number) { return static_cast<double>(found) == std::floor(number); };
  if (found > p.N) return "a rank would have less than a column";
  if (found < 0) return "where not even one rank reaches the balance, the answer is 0";
  if (found == expected + 1) return "one too many: X, A and Y all count, and p is rounded down";
  if (is((2 * M * N * K / (element * balance) - M * K) / (K * N + M * N)))
    return "every rank reads all of X: p divides the bytes of A and Y, and not those of X";
  if (is(2 * N / (element * balance))) return "A and Y are read and written, too, not X alone";
  if (is(N * (1 / balance - 1 / M - 1 / K)))
    return fmt::format("an element has {} bytes, not 2", element);
  if (is(N * (1 / (element * balance) - 1 / M - 1 / K)))
    return "a multiplication and an addition are 2 FLOPs";
  return "FLOPs / bytes >= balance, solved for p, with cost_of_part()'s";
}

void expect_most(const SplitProduct& p, double balance, Index expected) {
  const Index found = most_ranks(p, balance);
  EXPECT_EQ(found, expected) << text(p) << ", " << balance << " FLOPs a byte: most_ranks is "
                             << found << ", expected " << expected
                             << ". Usual cause: " << usual_cause(p, balance, found, expected);
}

// 8 x 8 matrices of 2 bytes: a part has 8 / (2 + p) FLOPs a byte, with 1, 2, 6 ranks 8/3, 2 and 1.
TEST(Intensity, MostRanksByHand) {
  expect_most(square(8), 2, 2);
  expect_most(square(8), 1, 6);
  expect_most(square(8), 2.5, 1);
  expect_most(square(8), 3, 0);
  expect_most(square(8), 0.5, 8);
}

TEST(Intensity, MostRanksOfAnA100) {
  const double balance = 312e12 / 2039e9;
  expect_most(square(4096), balance, 24);
  expect_most(square(2048), balance, 11);
  expect_most(square(256), balance, 0);
}

// p <= N (2 / (bytes of an element x balance) - 1/M - 1/K), by hand.
TEST(Intensity, MostRanksOfMatricesThatAreNotSquareAndOfLongerTypes) {
  expect_most({.M = 4, .N = 32, .K = 8, .dtype = DType::BF16}, 1, 20);  // 32 (1 - 3/8)
  expect_most({.M = 4, .N = 32, .K = 8, .dtype = DType::F32}, 1, 4);    // 32 (1/2 - 3/8)
  expect_most({.M = 4, .N = 32, .K = 8, .dtype = DType::F64}, 1, 0);    // 32 (1/4 - 3/8)
  expect_most({.M = 4, .N = 32, .K = 8, .dtype = DType::F64}, 0.5, 4);
  expect_most({.M = 1, .N = 1000, .K = 1000}, 0.5, 999);  // 1000 (2 - 1 - 1/1000)
  expect_most({.M = 1, .N = 1000, .K = 1000}, 1, 0);      // one token: no product at all
}

TEST(Intensity, MostRanksAreTheLastWithEnough) {
  int capped = 0, none = 0, between = 0;
  for (int i = 0; i < 200; ++i) {
    const std::string what = fmt::format("intensity {} ", i);
    const auto size = [&](const char* of) { return drawn(what + of, 1, 3000); };
    const DType types[] = {DType::BF16, DType::F32, DType::F64};
    const SplitProduct p{size("M"), size("N"), size("K"),
                         types[static_cast<std::size_t>(drawn(what + "type", 0, 2))]};
    const double balance =
        std::exp2(drawn(what + "scale", -4, 8)) * static_cast<double>(size("balance")) / 3000;
    const Index most = most_ranks(p, balance);
    ASSERT_GE(most, 0) << text(p) << ", balance " << balance << ": a number of ranks";
    ASSERT_LE(most, p.N) << text(p) << ", balance " << balance << ": a rank has a column at least";
    const double rounding = 1e-9 * balance;
    if (most > 0) {
      EXPECT_GE(cost_of_part(p, most).intensity(), balance - rounding)
          << text(p) << ": with " << most << " ranks a part has too few FLOPs a byte";
    }
    if (most < p.N) {
      EXPECT_LT(cost_of_part(p, most + 1).intensity(), balance + rounding)
          << text(p) << ": " << most + 1 << " ranks have enough, too";
    }
    (most == 0 ? none : most == p.N ? capped : between) += 1;
  }
  EXPECT_GT(none, 0);
  EXPECT_GT(capped, 0);
  EXPECT_GT(between, 20);
}

// A machine without launches or shares: 1 PFLOP/s and 1 TB/s.
TEST(Intensity, BeyondMostRanksAPartTakesLongerThanItsArithmetic) {
  const Machine machine = find_machine("limitless");
  const double peak = machine.peak(DType::BF16), balance = peak / machine.memory_bandwidth;
  for (const Index n : {4096, 8192, 30000}) {
    const Index most = most_ranks(square(n), balance);
    const auto slower = [&](Index ranks) {
      const PartCost part = cost_of_part(square(n), ranks);
      const double seconds = machine.seconds(
          {.flops = part.flops, .bytes = part.bytes, .dtype = DType::BF16, .product = true});
      return seconds / (part.flops / peak);
    };
    ASSERT_GT(most, 0) << n;
    EXPECT_DOUBLE_EQ(slower(most), 1) << n << ": " << most << " ranks wait for memory";
    EXPECT_GT(slower(most + 1), 1.000001) << n << ": " << most + 1 << " ranks do not";
  }
}

// --- given -------------------------------------------------------------------------------------

// X (8, 8), A and Y (8, 4) in 2 bytes.
TEST(IntensityGiven, OfAPartByHand) {
  const PartCost part = cost_of_part(square(8), 2);
  EXPECT_EQ(part.flops, 2 * 8 * 4 * 8);
  EXPECT_EQ(part.bytes, 2 * (64 + 32 + 32));
  EXPECT_EQ(part.intensity(), 2);
}

TEST(IntensityGiven, OfSquareMatricesIsThePublishedFormula) {
  for (const double n : {1., 7., 2048., 4096.})
    for (const double p : {1., 2., 3., 24., 1000.})
      EXPECT_DOUBLE_EQ(
          cost_of_part(square(static_cast<Index>(n)), static_cast<Index>(p)).intensity(),
          n / (2 + p));
}

TEST(IntensityGiven, IsWhatTheLibraryChargesForTheProduct) {
  CpuDevice device;
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16})
    for (const Index ranks : {1, 2, 3, 7}) {
      const Index M = drawn("charged M", 1, 40), K = drawn("charged K", 1, 40);
      const Index columns = drawn("charged columns", 1, 20);
      const Tensor x = random_tensor({M, K}, dtype, device, "X");
      const Tensor a = random_tensor({K, columns}, dtype, device, "A");
      const Tensor y({M, columns}, dtype, device);
      OpCost charged;
      device.listen([&](const OpCost& cost) { charged = cost; });
      ops::matmul(y, x, a);
      device.listen({});
      const PartCost part = cost_of_part({M, columns * ranks, K, dtype}, ranks);
      EXPECT_TRUE(charged.product);
      EXPECT_DOUBLE_EQ(part.flops, charged.flops) << name_of(dtype) << ", " << ranks << " ranks";
      EXPECT_DOUBLE_EQ(part.bytes, charged.bytes) << name_of(dtype) << ", " << ranks << " ranks";
    }
}

TEST(IntensityGiven, RefusesNonsense) {
  EXPECT_EQ(message_of([] { cost_of_part(square(4), 0); }),
            "split product: over 0 ranks, expected 1 or more");
  EXPECT_EQ(message_of([] { cost_of_part({.M = 4, .N = 0, .K = 4}, 1); }),
            "split product: M 4, N 0, K 4, expected 1 or more of each");
  EXPECT_EQ(message_of([] { most_ranks({.M = 0, .N = 4, .K = 4}, 1); }),
            "split product: M 0, N 4, K 4, expected 1 or more of each");
  EXPECT_EQ(message_of([] { most_ranks({.M = 4, .N = 4, .K = -1}, 1); }),
            "split product: M 4, N 4, K -1, expected 1 or more of each");
  EXPECT_EQ(message_of([] { most_ranks(square(4), 0); }),
            "split product: a balance of 0 FLOPs a byte, expected more than 0");
  EXPECT_EQ(message_of([] { most_ranks(square(4), -2); }),
            "split product: a balance of -2 FLOPs a byte, expected more than 0");
  EXPECT_EQ(message_of([] { most_ranks(square(4), std::numeric_limits<double>::quiet_NaN()); }),
            "split product: a balance of nan FLOPs a byte, expected more than 0");
}

}  // namespace
}  // namespace aisc
