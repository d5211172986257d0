// The flags of a program, and the numbers among them.
#include "common/core/flags/command_line.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/error_says.h"

namespace aisc {
namespace {

TEST(WholeNumber, IsReadInDecimalAndInItsRange) {
  EXPECT_EQ(whole_number("--steps", "12", 1, 1000), 12);
  EXPECT_EQ(whole_number("--steps", "010", 1, 1000), 10) << "not in the base 8";
  EXPECT_EQ(whole_number("--x", "-5", -5, 5), -5);
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(whole_number("--seed", "9223372036854775807", 0, kMost), kMost);
  for (const char* text : {"", "0", "1001", "-1", "2,1e3", "1e3", "0x10", "7.0", " 7", "7 ", "+7",
                           "seven", "9223372036854775808", "99999999999999999999999"})
    EXPECT_TRUE(error_says([&] { whole_number("--steps", text, 1, 1000); },
                           {"--steps " + std::string(text) + ":", "from 1 to 1000"}))
        << text;
}

TEST(RealNumber, IsFinite) {
  EXPECT_EQ(real_number("--clip", "0.25"), 0.25);
  EXPECT_EQ(real_number("--clip", "-1e-3"), -1e-3);
  for (const char* text : {"", "nan", "inf", "-inf", "1e999", "0,5", "1.5x", "half"})
    EXPECT_TRUE(error_says([&] { real_number("--clip", text); },
                           {"--clip " + std::string(text) + ":", "expected a number"}))
        << text;
}

struct Flags {
  int count = 3;
  std::int64_t bytes = 1;
  double seconds = 2.5;
  std::vector<int> ranks{2, 4};
  std::string kind = "ring";
  std::vector<std::string> names;
  bool quick = false, slow = false;
};

struct Parsed {
  Flags flags;
  std::optional<int> status;
  std::string said;  // to the standard output and error
};

Parsed parse(std::vector<const char*> words) {
  Parsed parsed;
  CommandLine line("Is a test.");
  line.number("--count", parsed.flags.count, 1, 10, "how many");
  line.number("--bytes", parsed.flags.bytes, 1, std::int64_t{1} << 40, "how large");
  line.number("--seconds", parsed.flags.seconds, 0, 60, "how long");
  line.numbers("--ranks", parsed.flags.ranks, 2, 8, "of each run");
  line.text("--kind", parsed.flags.kind, "which", {"ring", "tree"});
  line.texts("--names", parsed.flags.names, "all");
  line.given("--quick", parsed.flags.quick, "not long");
  line.given("--slow", parsed.flags.slow, "long");
  line.excludes("--slow", {"--quick"});
  line.needs("--bytes", "--slow");
  words.insert(words.begin(), "test");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  parsed.status = line.parse(static_cast<int>(words.size()), words.data());
  parsed.said = testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr();
  return parsed;
}

TEST(CommandLine, ReadsValuesOfEachKind) {
  const Parsed none = parse({});
  EXPECT_EQ(none.status, std::nullopt);
  EXPECT_EQ(none.flags.count, 3);
  EXPECT_EQ(none.flags.ranks, (std::vector<int>{2, 4}));
  const Parsed all = parse({"--count", "7", "--seconds=0.25", "--ranks", "8,3", "--kind", "tree",
                            "--names", "a,b", "--slow", "--bytes", "1099511627776"});
  EXPECT_EQ(all.status, std::nullopt) << all.said;
  EXPECT_EQ(all.flags.count, 7);
  EXPECT_EQ(all.flags.seconds, 0.25);
  EXPECT_EQ(all.flags.ranks, (std::vector<int>{8, 3}));
  EXPECT_EQ(all.flags.kind, "tree");
  EXPECT_EQ(all.flags.names, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(all.flags.slow);
  EXPECT_EQ(all.flags.bytes, std::int64_t{1} << 40);
  EXPECT_EQ(parse({"--count", "1", "--count", "2"}).flags.count, 2) << "the last counts";
  EXPECT_EQ(parse({"--ranks", "2,3", "--ranks", "4", "5"}).flags.ranks,
            (std::vector<int>{2, 3, 4, 5}));
}

TEST(CommandLine, SaysWhatMakesNoSense) {
  const std::vector<std::pair<std::vector<const char*>, const char*>> cases{
      {{"--count", "11"}, "--count 11: expected a whole number from 1 to 10"},
      {{"--count", "1e3"}, "--count 1e3: expected a whole number"},
      {{"--count", "99999999999999999999"}, "from 1 to 10"},
      {{"--seconds", "nan"}, "--seconds nan: expected a number"},
      {{"--seconds", "61"}, "--seconds 61: expected a number from 0 to 60"},
      {{"--ranks", "2,9"}, "--ranks 9: expected a whole number from 2 to 8"},
      {{"--kind", "rung"}, "--kind rung: expected ring, tree"},
      {{"--quick", "--slow"}, "--quick"},
      {{"--bytes", "4"}, "--slow"},
      {{"--cuont", "4"}, "--cuont"}};
  for (const auto& [words, expected] : cases) {
    const Parsed parsed = parse(words);
    EXPECT_EQ(parsed.status, 2) << expected;
    EXPECT_NE(parsed.said.find(expected), std::string::npos) << parsed.said;
  }
}

TEST(CommandLine, HelpNamesFlagsDefaultsAndWhatTheyAreFor) {
  const Parsed parsed = parse({"--help"});
  EXPECT_EQ(parsed.status, 0);
  for (const char* expected : {"Is a test.", "--count", "3", "how many", "2,4", "ring|tree"})
    EXPECT_NE(parsed.said.find(expected), std::string::npos) << expected << "\n" << parsed.said;
}

}  // namespace
}  // namespace aisc
