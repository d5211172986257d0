// What is said of flags that have no effect.
#include "app/remarks.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/app/parsed.h"

namespace aisc {
namespace {

using parsed::accepted;

struct Case {
  parsed::Flags flags;
  std::string begin;  // of the only line; empty: there is none
};

class FlagsWithoutEffect : public ::testing::TestWithParam<Case> {};

TEST_P(FlagsWithoutEffect, AreNamedWithTheReason) {
  const auto lines = accepted(GetParam().flags).remarks;
  if (GetParam().begin.empty()) {
    EXPECT_TRUE(lines.empty()) << lines[0];
    return;
  }
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(lines[0].starts_with(GetParam().begin)) << lines[0];
}

INSTANTIATE_TEST_SUITE_P(
    Of, FlagsWithoutEffect,
    ::testing::Values(
        Case{{}, ""}, Case{{"--zero", "2"}, "--zero has no effect: one rank"},
        Case{{"--zero", "0"}, ""}, Case{{"--zero", "2", "--ranks", "2"}, ""},
        Case{{"--zero", "2", "--ranks", "2", "--tp", "2"}, "--zero has no effect"},
        Case{{"--zero", "2", "--zero-group", "1"}, "--zero, --zero-group have no effect"},
        Case{{"--zero", "2", "--zero-group", "2", "--ranks", "4"}, ""},
        Case{{"--overlap", "off", "--bucket-mb", "3"}, "--overlap, --bucket-mb have no effect"},
        Case{{"--overlap", "off", "--ranks", "2"}, ""},
        Case{{"--average-every", "7"}, "--average-every has no effect"},
        Case{{"--accumulate", "layered"}, "--accumulate has no effect: --micro-batches is 1"},
        Case{{"--accumulate", "layered", "--micro-batches", "2"}, ""},
        Case{{"--order", "dp,tp,pp", "--ranks", "2"}, "--order has no effect"},
        Case{{"--order", "dp,tp,pp", "--ranks", "4", "--tp", "2"}, ""},
        Case{{"--prefetch-data", "2"}, ""},
        Case{{"--prefetch-data", "2", "--machine", "dgx-2"}, "--prefetch-data has no effect: data"},
        Case{{"--algorithm", "ring"}, "--algorithm has no effect: one rank"},
        Case{{"--algorithm", "ring", "--ranks", "2"}, ""},
        Case{{"--optimizer", "adafactor", "--beta1", "0.8"}, "--beta1 has no effect: Adafactor"},
        Case{{"--beta1", "0.8"}, ""},
        Case{{"--sample-tokens", "0", "--temperature", "1", "--sample", "x"},
             "--sample, --temperature have no effect: --sample-tokens is 0"},
        Case{{"--temperature", "0", "--top-k", "3"}, "--top-k has no effect: --temperature is 0"},
        Case{{"--keep", "3", "--checkpoint-interval", "0"}, "--keep has no effect"},
        Case{{"--keep", "3", "--steps", "100"}, "--keep has no effect: --checkpoint-interval 500"},
        Case{{"--keep", "3"}, ""},
        Case{{"--from", "x", "--steps", "3", "--batch", "4"},
             "--steps, --batch have no effect: --from trains nothing"},
        Case{{"--from", "x", "--sample", "y", "--top-k", "2"}, ""},
        Case{{"--machine", "x", "--keep", "3", "--sample", "y"}, "--keep, --sample have no effect"},
        Case{{"--machine", "x", "--ranks", "2", "--zero", "1"}, ""},
        Case{{"--launcher", "threads"}, ""},
        Case{{"--warmup", "300", "--steps", "100"},
             "--warmup 300: of 100 steps its rate never reaches 0.004; the last "
             "step's is 0.00133"},
        Case{{"--warmup", "100", "--steps", "100"},
             "--warmup 100: of 100 steps the last has the peak, 0.004"},
        Case{{"--warmup", "99", "--steps", "100"}, "--warmup 99: of 100 steps the last"},
        Case{{"--warmup", "98", "--steps", "100"}, ""}, Case{{"--steps", "2"}, ""}),
    [](const auto& test) { return std::to_string(test.index); });

TEST(FlagsWithoutEffectOfAResumedRun, AreThoseOfItsCommand) {
  const std::string config = accepted({"--zero", "1"}).to_json();
  const auto lines = accepted({"--sample-tokens", "0", "--top-k", "2"}, config).remarks;
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(lines[0].starts_with("--top-k has no effect")) << lines[0];
}

// The warm-up that nobody gave.
TEST(Warmup, OfShortRunsIsATenth) {
  const auto warmup = [](const parsed::Flags& flags) { return accepted(flags).train.warmup_steps; };
  EXPECT_EQ(warmup({}), 200);
  EXPECT_EQ(warmup({"--steps", "2000"}), 200);
  EXPECT_EQ(warmup({"--steps", "300"}), 30);
  EXPECT_EQ(warmup({"--steps", "9"}), 0);
  EXPECT_EQ(warmup({"--steps", "9", "--warmup", "5"}), 5);
}

}  // namespace
}  // namespace aisc
