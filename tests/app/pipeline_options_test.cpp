// Flags of a pipeline: which go together, and what they mean when they are not given.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "app/options.h"
#include "tests/app/parsed.h"

namespace aisc {
namespace {

using parsed::accepted;
using parsed::expect_refused;
using parsed::parse;
using parsed::refusal;

TEST(PipelineOptions, SayWhichFlagsDoNotGoTogether) {
  expect_refused(
      {{{"--schedule", "gpipe"}, "--schedule: only beside --pp"},
       {{"--chunks=2"}, "--chunks: only beside --pp"},
       {{"--recompute-stages", "early"}, "--recompute-stages: only beside --pp"},
       {{"--keep-mb", "4"}, "--keep-mb: only beside --recompute core or --recompute-stages"},
       {{"--ranks", "3", "--pp", "2"}, "3 ranks are no multiple of pp 2: each stage has as many"},
       {{"--ranks", "2", "--pp", "2", "--accumulate", "layered"},
        "--pp 2 and --accumulate layered: the schedule says when micro-batches pass the layers"},
       {{"--ranks", "2", "--pp", "2", "--average-every", "4"},
        "--pp 2 and --average-every: each step sums the gradients of the ranks that have the same "
        "stage"},
       {{"--ranks", "2", "--pp", "2", "--optimizer", "onebit-adam"},
        "--pp 2 and --optimizer onebit-adam: its errors are of ranks with a whole model"},
       {{"--ranks", "2", "--pp", "2", "--keep-mb", "-1"},
        "--keep-mb is -1, expected from 0 to 1000000"},
       {{"--ranks", "2", "--pp", "2", "--keep-mb", "4"},
        "--keep-mb: only beside --recompute core or --recompute-stages"},
       {{"--ranks", "2", "--pp", "2", "--schedule", "pipedream", "--clip", "0.5"},
        "--schedule pipedream and --clip 0.5: a stage that updates while others compute cannot "
        "clip "
        "by the norm of all; --clip 0"},
       {{"--ranks", "2", "--pp", "2", "--schedule", "2bw", "--zero", "1"},
        "--pp 2 and --zero: weights of several versions are kept whole where updates do not wait"},
       {{"--ranks", "2", "--pp", "2", "--stashing", "off"},
        "--pp 2 and --stashing off: only --schedule pipedream changes weights between a forward "
        "and "
        "its backward"},
       {{"--ranks", "4", "--pp", "2", "--schedule", "zb-h1", "--zero", "2"},
        "--pp 2 and --zero: from stage 2 on gradients are freed behind a layer, zero-bubble "
        "schedules defer them"}});
}

TEST(PipelineOptions, MeanTheseWhenTheyAreNotGiven) {
  const Options plain = accepted({});
  EXPECT_EQ(plain.train.pp, 1);
  EXPECT_GT(plain.train.clip, 0);
  const Options two = accepted({"--ranks", "2", "--pp", "2"});
  EXPECT_EQ(two.pipeline.schedule, "1f1b");
  EXPECT_EQ(two.chunks(), 1);
  EXPECT_EQ(two.pipeline.again, "none");
  const auto stages = [](const char* schedule) {
    const auto options = parse({"--ranks", "2", "--pp", "2", "--schedule", schedule}).options;
    return options ? options->chunks() : 0;
  };
  EXPECT_EQ(stages("interleaved"), 2);
  EXPECT_EQ(stages("zb-v"), 2);
  EXPECT_EQ(accepted({"--ranks", "2", "--pp", "2", "--schedule", "pipedream"}).train.clip, 0);
}

// What cannot clip sets --clip aside; a run that goes on without it clips again.
TEST(PipelineOptions, SetClippingAsideAndDoNotForgetIt) {
  const Options clipped =
      accepted({"--ranks", "2", "--pp", "2", "--clip", "0.5", "--schedule", "1f1b"});
  const Options pipedream =
      accepted({"--ranks", "2", "--pp", "2", "--schedule", "pipedream"}, clipped.to_json());
  EXPECT_EQ(pipedream.train.clip, 0);
  const Options again =
      accepted({"--ranks", "2", "--pp", "2", "--schedule", "gpipe"}, pipedream.to_json());
  EXPECT_EQ(again.train.clip, 0.5);
  const Options signs =
      accepted({"--ranks", "2", "--optimizer", "onebit-adam"}, accepted({}).to_json());
  EXPECT_EQ(signs.train.clip, 0);
  EXPECT_EQ(accepted({"--optimizer", "adamw"}, signs.to_json()).train.clip,
            accepted({}).train.clip);
}

TEST(PipelineOptions, KeepNothingBesidesWhereAllIsKept) {
  const Options early =
      accepted({"--ranks", "2", "--pp", "2", "--recompute-stages", "early", "--keep-mb", "4"});
  EXPECT_TRUE(parse({"--ranks", "2", "--pp", "2"}, early.to_json()).options);
}

TEST(PipelineOptions, AreKeptByARunAndMayChange) {
  const Options before =
      accepted({"--ranks", "2", "--pp", "2", "--schedule", "interleaved", "--chunks", "3"});
  const Options same = accepted({}, before.to_json());
  EXPECT_EQ(same.to_json(), before.to_json());
  EXPECT_EQ(same.chunks(), 3);
  const Options other =
      accepted({"--ranks", "2", "--pp", "2", "--schedule", "zb-h1"}, before.to_json());
  EXPECT_EQ(other.chunks(), 1);
  EXPECT_TRUE(parse({"--ranks", "1"}, before.to_json()).options) << "it goes on without a pipeline";
}

}  // namespace
}  // namespace aisc
