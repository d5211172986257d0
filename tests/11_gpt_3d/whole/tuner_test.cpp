// The tuner's first choice is that of trying everything, and what it drops it says why.
#include "11_gpt_3d/tuner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "common/core/error.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

using Words = std::vector<std::string>;

const Words kSmallGpt = {"--layers=4",   "--heads=4", "--width=64",       "--context=32",
                         "--batch=16",   "--ranks=8", "--vocabulary=256", "--precision=bf16",
                         "--device=cpu", "--clip=1"};

TEST(TuningSpace, IsReadAndRefused) {
  const TuningSpace space = parse_space("zero=0,1,3  micro-batches=2");
  ASSERT_EQ(space.size(), 2u);
  EXPECT_EQ(space[0].name, "zero");
  EXPECT_EQ(space[0].values, (Words{"0", "1", "3"}));
  EXPECT_EQ(space[1].values, Words{"2"});
  for (const auto& [text, said] :
       std::map<std::string, std::string>{{"", "found nothing"},
                                          {"zero", "found \"zero\", expected FLAG=VALUE"},
                                          {"zero=", "found \"zero=\", expected FLAG=VALUE"},
                                          {"=3", "found \"=3\""},
                                          {"zero=1 zero=2", "zero stands twice"}})
    EXPECT_TRUE(error_says([&, t = text] { parse_space(t); }, {"--space: " + said})) << text;
}

// By virtual time alone each run of the space is tried: no other one is quicker.
TEST(Tuner, FindsTheQuickestOfAllThatFit) {
  const TunerOptions options{
      .flags = kSmallGpt,
      .space = parse_space("tp=1,2,4 pp=1,2,4 micro-batches=1,2,4,8 zero=0,1"),
      .machine = "dgx-a100"};
  const std::vector<TunedRun> runs = tune(options);
  ASSERT_EQ(runs.size(), 3u * 3 * 4 * 2);
  const auto fits = [](const TunedRun& run) { return run.dropped.empty(); };
  ASSERT_TRUE(fits(runs[0]));
  double before = 0;
  for (const TunedRun& run : runs) {
    EXPECT_NE(run.seconds > 0, !fits(run)) << testing::PrintToString(run.flags) << run.dropped;
    if (!fits(run)) continue;
    EXPECT_GE(run.seconds, before) << "the quickest first";
    before = run.seconds;
  }
  EXPECT_TRUE(std::is_partitioned(runs.begin(), runs.end(), fits));
  // 2 ranks for data and 16 samples: 8 are a rank's, and 4 stages with 1 micro-batch wait.
  EXPECT_GT(std::count_if(runs.begin(), runs.end(), fits), 20);
}

TEST(Tuner, SaysWhyARunIsNone) {
  TunerOptions options{.flags = kSmallGpt,
                       .space = parse_space("tp=1,3 zero=0,1 schedule=1f1b,zb-h1"),
                       .machine = "dgx-a100",
                       .limit = 1e3};
  std::map<std::string, int> why;
  for (const TunedRun& run : tune(options)) ++why[run.dropped];
  EXPECT_EQ(why["--schedule: only beside --pp"], 8) << testing::PrintToString(why);
  options.space = parse_space("tp=1,2");
  for (const TunedRun& run : tune(options))
    EXPECT_NE(run.dropped.find("GB, 1e-06 are there"), std::string::npos) << run.dropped;
  options.limit = 0;
  options.space = parse_space("nonsense=1");
  EXPECT_NE(tune(options)[0].dropped, "");
}

// Two nodes of eight: what is sent between them is less in groups, and what is held is more.
TEST(Tuner, TriesGroupsOfShards) {
  const std::vector<TunedRun> runs =
      tune({.flags = {"--layers=4", "--heads=4", "--width=256", "--context=32", "--batch=16",
                      "--ranks=16", "--vocabulary=256", "--precision=bf16", "--zero=3"},
            .space = parse_space("zero-group=0,3,8,16"),
            .machine = "dgx-a100"});
  ASSERT_EQ(runs.size(), 4u);
  EXPECT_EQ(runs[0].flags, Words{"--zero-group=8"});
  EXPECT_LT(runs[0].seconds, runs[1].seconds);
  EXPECT_GT(runs[0].bytes, runs[1].bytes);
  EXPECT_NEAR(runs[1].seconds, runs[2].seconds, 1e-2 * runs[1].seconds)
      << "0 is all, of which one runs for the others";
  EXPECT_EQ(runs[3].dropped, "--zero-group 3: 16 ranks sum gradients, expected a divisor of them");
}

// What is measured decides, where it is: within 5 % of trying every run for real, on spaces of 200.
// Real seconds are here virtual ones that a profile errs of, by up to a tenth.
TEST(Tuner, MeasuresTheBestFewAndComesNearToTryingAll) {
  TunerOptions options{
      .flags = kSmallGpt,
      .space =
          parse_space("tp=1,2,4 pp=1,2,4 micro-batches=1,2,4,8 zero=0,1,2 recompute=none,block"),
      .machine = "dgx-a100"};
  const std::vector<TunedRun> all = tune(options);
  ASSERT_EQ(all.size(), 216u);
  std::map<Words, double> real;
  std::uint64_t state = 7;
  for (const TunedRun& run : all) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    real[run.flags] = run.seconds * (.9 + .2 * static_cast<double>(state >> 33) / 2147483648.0);
  }
  double quickest = 1e9;
  for (const TunedRun& run : all)
    if (run.dropped.empty()) quickest = std::min(quickest, real[run.flags]);
  int calls = 0;
  options.best = 16;
  options.measure = [&](const Options& o, int) {
    ++calls;
    const PredictedStep step = predicted_step(o, "dgx-a100");
    for (const TunedRun& run : all)
      if (run.seconds == step.seconds && run.bytes == step.bytes) return real[run.flags];
    fail("which run is this?");
  };
  const std::vector<TunedRun> tuned = tune(options);
  EXPECT_LE(real[tuned[0].flags], 1.05 * quickest);
  EXPECT_LT(calls, 2 * options.best);
  EXPECT_GT(tuned[0].measured, 0);
  EXPECT_EQ(tuned[15].measured > 0, true);
  EXPECT_EQ(tuned[16].measured, 0);
}

// A space of 324 runs, of which the moves try a part: the first choice is within 5 % of trying all.
TEST(Tuner, MovesComeNearToTryingAll) {
  TunerOptions options{.flags = kSmallGpt,
                       .space = parse_space("tp=1,2,4 pp=1,2,4 micro-batches=2,4,8"),
                       .machine = "dgx-a100"};
  const auto tried = [](const std::vector<TunedRun>& runs) { return std::ssize(runs); };
  const std::vector<TunedRun> small = tune(options);
  std::vector<std::size_t> told;
  options.tell = [&](std::size_t count) { told.push_back(count); };
  options.moves = {{"sp", {"false", "true"}},
                   {"zero", {"0", "1"}},
                   {"schedule", {"1f1b", "gpipe", "interleaved --chunks=2"}}};
  const std::vector<TunedRun> moved = tune(options);
  options.tell = {};
  EXPECT_EQ(std::ssize(told), tried(moved));
  EXPECT_EQ(told.front(), 1u);
  EXPECT_EQ(told.back(), told.size());
  TunerOptions whole = options;
  whole.moves = {};
  whole.space.insert(whole.space.end(), options.moves.begin(), options.moves.end());
  const std::vector<TunedRun> all = tune(whole);
  EXPECT_EQ(tried(all), 3 * 3 * 3 * 2 * 2 * 3);
  EXPECT_LT(tried(moved), tried(all) / 2);
  EXPECT_LE(moved[0].seconds, 1.05 * all[0].seconds) << testing::PrintToString(all[0].flags);
  EXPECT_LT(moved[0].seconds, small[0].seconds) << "better than the space alone";
}

// Nothing of the space fits; a move that needs less leads to one that does.
TEST(Tuner, MovesBeginWithWhatNeedsTheLeastWhereNothingFits) {
  TunerOptions options{
      .flags = kSmallGpt, .space = parse_space("micro-batches=1,2"), .machine = "dgx-a100"};
  double least = 1e18;
  for (const TunedRun& run : tune(options)) least = std::min(least, run.bytes);
  options.limit = .9 * least;
  EXPECT_FALSE(tune(options)[0].dropped.empty());
  options.moves = {{"zero", {"0", "3"}}, {"recompute", {"none", "block"}}};
  const std::vector<TunedRun> runs = tune(options);
  ASSERT_TRUE(runs[0].dropped.empty()) << runs[0].dropped;
  EXPECT_LE(runs[0].bytes, options.limit);
}

TEST(Tuner, UsualMovesLeaveWhatIsGivenAndWhatCannotBe) {
  const auto moves = [](Words more) {
    Words flags = kSmallGpt;
    flags.insert(flags.end(), more.begin(), more.end());
    std::vector<const char*> words{"tune"};
    for (const std::string& flag : flags) words.push_back(flag.c_str());
    std::vector<std::string> names;
    for (const TunedFlag& flag :
         usual_moves(*parse_options(static_cast<int>(words.size()), words.data()).options))
      names.push_back(flag.name);
    return names;
  };
  const auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::count(names.begin(), names.end(), name) == 1;
  };
  for (const std::string name : {"sp", "schedule", "cp", "zero-group", "offload"})
    EXPECT_TRUE(has(moves({}), name)) << name;
  EXPECT_FALSE(has(moves({}), "ep")) << "there are no experts";
  EXPECT_TRUE(has(moves({"--experts=4"}), "ep"));
  EXPECT_FALSE(has(moves({"--tp=2", "--sp"}), "sp"));
  EXPECT_FALSE(has(moves({"--cp=2"}), "cp"));
}

TEST(Tuner, ARunThatFailsForRealIsDropped) {
  TunerOptions options{.flags = kSmallGpt,
                       .space = parse_space("micro-batches=1,2"),
                       .machine = "dgx-a100",
                       .best = 2};
  options.measure = [](const Options& o, int) -> double {
    if (o.train.micro_batches == 1) fail("no memory");
    return 1;
  };
  const std::vector<TunedRun> runs = tune(options);
  EXPECT_EQ(runs[0].flags, Words{"--micro-batches=2"});
  EXPECT_EQ(runs[1].dropped, "no memory");
}

TEST(PredictedSteps, OfAFullPipelineAreTwoTurnsAndTheirDifference) {
  const Words flags = {"--layers=4",   "--heads=4",          "--width=64",
                       "--context=32", "--batch=64",         "--ranks=4",
                       "--pp=4",       "--micro-batches=32", "--vocabulary=256"};
  std::vector<const char*> words{"tune"};
  for (const std::string& flag : flags) words.push_back(flag.c_str());
  const Options o = *parse_options(static_cast<int>(words.size()), words.data()).options;
  const PredictedStep whole = predicted_step(o, "dgx-a100", 0), few = predicted_step(o, "dgx-a100");
  EXPECT_NEAR(few.seconds / whole.seconds, 1, 1e-3);
  EXPECT_EQ(few.bytes, whole.bytes);
}

}  // namespace
}  // namespace aisc
