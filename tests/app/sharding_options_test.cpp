// Flags of sharding: which go together, what they mean when they are not given, and after a resume.
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

TEST(ShardingOptions, SayWhichFlagsDoNotGoTogether) {
  expect_refused(
      {{{"--zero", "1", "--overlap", "on"}, "--overlap and --zero 1: shards are sent unit by unit"},
       {{"--zero", "3", "--overlap=off"}, "--overlap and --zero 3: shards are sent unit by unit"},
       {{"--zero", "2", "--bucket-mb", "25"},
        "--bucket-mb and --zero 2: shards are sent unit by unit"},
       {{"--zero", "2", "--average-every", "4"},
        "--zero 2 and --average-every: ranks that step on their own each need all of the model"},
       {{"--zero", "1", "--optimizer", "onebit-adam"},
        "--zero 1 and --optimizer onebit-adam: signs are of whole momenta"},
       {{"--prefetch", "1"}, "--prefetch: only beside --zero 3"},
       {{"--zero", "2", "--live=7"}, "--live: only beside --zero 3"},
       {{"--zero", "1", "--reuse", "7"}, "--reuse: only beside --zero 3"},
       {{"--persist", "7", "--zero", "2"}, "--persist: only beside --zero 3"},
       {{"--shard-by", "owners", "--zero", "2"}, "--shard-by: only beside --zero 3"},
       {{"--shard-by", "owners", "--zero", "3", "--optimizer", "adafactor"},
        "--shard-by owners and --optimizer adafactor: its sums are of slices, or of all"},
       {{"--ranks", "4", "--pp", "2", "--shard-by", "owners", "--zero", "3"},
        "--pp 2 and --shard-by owners: of the table, which is on two stages, other ranks would be "
        "the "
        "owners"},
       {{"--ranks", "4", "--zero-group", "2"}, "--zero-group: only beside --zero"},
       {{"--ranks", "4", "--zero", "1", "--zero-group", "3"},
        "--zero-group 3: 4 ranks sum gradients, expected a divisor of them"},
       {{"--ranks", "4", "--zero", "1", "--zero-group", "8"},
        "--zero-group 8: 4 ranks sum gradients, expected a divisor of them"},
       {{"--ranks", "8", "--tp", "2", "--zero", "3", "--zero-group", "8"},
        "--zero-group 8: 4 ranks sum gradients, expected a divisor of them"},
       {{"--ranks", "4", "--zero", "1", "--zero-group", "4", "--experts", "4", "--ep", "2"},
        "--zero-group 4: 2 ranks sum gradients of experts, expected a divisor of them"},
       {{"--ranks", "4", "--zero", "3", "--zero-group", "2", "--shard-by", "owners"},
        "--zero-group 2 and --shard-by owners: an owner has its units for all"},
       {{"--ranks", "4", "--zero", "3", "--zero-group", "2", "--optimizer", "adafactor"},
        "--zero-group 2 and --optimizer adafactor: its sums are of the slices of all ranks"},
       {{"--ranks", "4", "--zero", "2", "--zero-group", "2", "--offload", "optimizer"},
        "--zero-group 2 and --zero 2 --offload optimizer: hosts divide gradients among all ranks; "
        "--zero 1 or 3 leaves them on the devices"},
       {{"--optimizer", "adafactor", "--average-every", "4"},
        "--optimizer adafactor and --average-every: its sums are not of one rank"},
       {{"--optimizer", "adafactor", "--device", "cuda"},
        "--optimizer adafactor and --device: it computes on the host"},
       {{"--plan", "--average-every", "4"},
        "--plan: of steps that sum gradients, found --optimizer onebit-adam or --average-every"},
       {{"--plan", "--optimizer", "onebit-adam"},
        "--plan: of steps that sum gradients, found --optimizer onebit-adam or --average-every"}});
  for (const char* stage : {"-1", "4"})
    EXPECT_NE(refusal({"--zero", stage}).find("expected a whole number from 0 to 3"),
              std::string::npos);
}

TEST(ShardingOptions, GoTogetherOtherwise) {
  for (const std::vector<const char*>& flags : std::vector<std::vector<const char*>>{
           {"--zero", "0", "--overlap", "off", "--bucket-mb", "2"},
           {"--zero", "3", "--prefetch", "0", "--live", "9", "--reuse", "8", "--persist", "7"},
           {"--zero", "2", "--accumulate", "layered", "--micro-batches", "2"},
           {"--zero", "3", "--optimizer", "adafactor", "--plan"},
           {"--optimizer", "adafactor", "--overlap", "off"},
           {"--zero", "1", "--device", "cuda"},
           {"--zero", "1", "--zero-group", "1"},
           {"--zero", "1", "--zero-group", "2", "--ranks", "4", "--offload", "optimizer"},
           {"--zero", "3", "--zero-group", "4", "--ranks", "4", "--cp", "2"},
           {"--zero", "2", "--zero-group", "2", "--ranks", "8", "--experts", "4", "--ep", "2"}})
    EXPECT_TRUE(parse(flags).options) << flags[0] << " " << flags[1] << " " << flags[2];
  const Options all =
      accepted({"--zero", "3", "--prefetch", "0", "--live", "9", "--reuse", "8", "--persist", "7"});
  const Options::Sharding& s = all.sharding;
  EXPECT_EQ(s.zero, 3);
  EXPECT_EQ(s.prefetch, 0);
  EXPECT_EQ(s.live, 9);
  EXPECT_EQ(s.reuse, 8);
  EXPECT_EQ(s.persist, 7);
}

// rho of Adafactor's relative steps, throughout, unless somebody says another.
TEST(ShardingOptions, OfAdafactorTakeItsOwnRate) {
  const auto rates = [](const std::vector<const char*>& flags) {
    const auto parsed = parse(flags);
    const TrainConfig& train = parsed.options.value().train;
    return std::pair(train.learning_rate, train.min_learning_rate);
  };
  EXPECT_EQ(rates({"--optimizer", "adafactor"}), std::pair(1e-2, 1e-2));
  EXPECT_EQ(rates({"--optimizer", "adafactor", "--learning-rate", "0.5"}), std::pair(0.5, 0.5));
  EXPECT_EQ(rates({"--optimizer", "adafactor", "--min-learning-rate", "0.001"}),
            std::pair(1e-2, 1e-3));
  EXPECT_EQ(rates({"--learning-rate", "0.5"}), std::pair(0.5, 0.025)) << "AdamW's";
}

// A run's config.json has all flags, also those that go with another stage: the command line alone
// is asked whether they go together.
TEST(ShardingOptions, OfARunMayChangeWhenItGoesOn) {
  const Options began =
      accepted({"--ranks", "4", "--zero", "3", "--prefetch", "2", "--persist", "700"});
  const std::string config = began.to_json();
  const Options same = accepted({"--steps", "9"}, config);
  EXPECT_EQ(same.sharding.zero, 3);
  EXPECT_EQ(same.sharding.prefetch, 2);
  EXPECT_EQ(same.sharding.persist, 700);
  for (const char* stage : {"0", "1", "2"})
    EXPECT_TRUE(parse({"--zero", stage, "--ranks", "2"}, config).options) << stage;
  EXPECT_EQ(refusal({"--zero", "1", "--prefetch", "2"}, config),
            "train_gpt: --prefetch: only beside --zero 3");

  const Options plain = accepted({"--overlap", "off", "--bucket-mb", "2"});
  EXPECT_TRUE(parse({"--zero", "3"}, plain.to_json()).options);
  EXPECT_EQ(refusal({"--zero", "3", "--overlap", "off"}, plain.to_json()),
            "train_gpt: --overlap and --zero 3: shards are sent unit by unit");
}

}  // namespace
}  // namespace aisc
