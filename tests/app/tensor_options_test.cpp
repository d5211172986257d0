// Flags of tensor parallelism: which go together, and that a run may go on without it.
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

TEST(TensorOptions, SayWhichFlagsDoNotGoTogether) {
  expect_refused(
      {{{"--ranks", "3", "--tp", "2"},
        "3 ranks of the model are no multiple of tp 2: as many share each layer"},
       {{"--ranks", "6", "--pp", "2", "--tp", "2", "--heads", "2", "--width", "16"},
        "3 ranks of a stage are no multiple of tp 2: as many share each layer"},
       {{"--ranks", "3", "--tp", "3", "--heads", "4", "--width", "16"},
        "heads are 4, expected a multiple of tp 3: each rank has whole heads"},
       {{"--ranks", "2", "--tp", "2", "--average-every", "4"},
        "--tp 2 and --average-every: each step sums the gradients of the ranks that have the same "
        "part"},
       {{"--ranks", "2", "--tp", "2", "--optimizer", "onebit-adam"},
        "--tp 2 and --optimizer onebit-adam: its errors are of ranks with a whole model"},
       {{"--sp"}, "--sp: only beside --tp"},
       {{"--ranks", "2", "--tp", "2", "--sp", "--context", "33"},
        "--sp: --context 33 over 2 ranks: expected a multiple"},
       {{"--ranks", "2", "--tp", "2", "--sp", "--recompute", "block", "--shard-activations", "on"},
        "--sp and --shard-activations: what a block keeps is a rank's share already"},
       {{"--ranks", "3", "--cp", "2"},
        "3 ranks of a layer are no multiple of cp 2: as many share each sequence"},
       {{"--ranks", "2", "--cp", "2", "--context", "1"},
        "context is 1, expected a token or more for each of cp 2 ranks"},
       {{"--cp-form", "ring"}, "--cp-form: only beside --cp"},
       {{"--ranks", "2", "--cp", "2", "--cp-form", "rsa"},
        "--cp-form rsa and --attention fused: it stores its scores: expected --attention stored"},
       {{"--ranks", "2", "--cp", "2", "--attention", "stored"},
        "--cp 2 and --attention stored: of all forms one stores its scores: expected --cp-form "
        "rsa"},
       {{"--ranks", "2", "--cp", "2", "--attention", "stored", "--cp-form", "ulysses"},
        "--cp 2 and --attention stored: of all forms one stores its scores: expected --cp-form "
        "rsa"},
       {{"--ranks", "2", "--cp", "2", "--attention", "stored", "--cp-form", "rsa", "--context",
         "33"},
        "--cp-form rsa: --context 33 over 2 ranks: expected a multiple"},
       {{"--ranks", "2", "--cp", "2", "--recompute", "core", "--keep-mb", "1", "--context", "33"},
        "--keep-mb: --context 33 over --cp 2: expected a multiple, so that ranks keep the same"},
       {{"--ranks", "4", "--pp", "2", "--zero", "3", "--batch", "9", "--recompute-stages", "early",
         "--keep-mb", "1"},
        "--keep-mb: --batch 9 over data-parallel ranks with --zero 3 or --offload, 2: expected a "
        "multiple, so "
        "that ranks keep the same"},
       {{"--ranks", "2", "--cp", "2", "--average-every", "4"},
        "--cp 2 and --average-every: each step sums the gradients of the ranks that share a "
        "sequence"},
       {{"--ranks", "4", "--cp", "2", "--tp", "2", "--order", "dp,pp,tp"},
        "--cp 2 and --order: it says nothing of ranks that share a sequence"}});
}

TEST(TensorOptions, AreWholeNumbers) {
  for (const char* text : {"½", "1.0", "", "one", "0"})
    EXPECT_EQ(refusal({"--ep", text}), std::string("train_gpt: --ep ") + text +
                                           ": expected a whole number from 1 to 1000000");
}

TEST(TensorOptions, HaveAnOrderOfTheirDirections) {
  EXPECT_EQ(accepted({}).order, "tp,dp,pp");
  const Options other = accepted({"--order", "dp,pp,tp", "--cp", "1", "--ep", "1"});
  EXPECT_EQ(other.order, "dp,pp,tp");
  EXPECT_EQ(accepted({}, other.to_json()).order, "dp,pp,tp");
}

// Scores that ranks share are those of one rank, which may go on with the run, and the other way
// round.
TEST(TensorOptions, LetARunThatStoresItsScoresChangeItsRanks) {
  const Options shared = accepted(
      {"--ranks", "2", "--cp", "2", "--cp-form", "rsa", "--attention", "stored", "--context", "8"});
  EXPECT_EQ(shared.cp_form, "rsa");
  EXPECT_EQ(accepted({}, shared.to_json()).to_json(), shared.to_json());
  const Options alone = accepted({"--ranks", "1"}, shared.to_json());
  EXPECT_EQ(alone.train.cp, 1);
  EXPECT_EQ(alone.attention, "stored");
  const Options again =
      accepted({"--ranks", "2", "--cp", "2", "--cp-form", "rsa"}, alone.to_json());
  EXPECT_EQ(again.to_json(), shared.to_json());
}

TEST(TensorOptions, AreKeptByARunAndMayChange) {
  const Options plain = accepted({});
  EXPECT_EQ(plain.train.tp, 1);
  const Options before = accepted({"--ranks", "4", "--tp", "2", "--heads", "2", "--width", "16"});
  EXPECT_EQ(before.train.data_ranks(4), 2);
  const Options same = accepted({}, before.to_json());
  EXPECT_EQ(same.to_json(), before.to_json());
  const Options alone = accepted({"--ranks", "1"}, before.to_json());
  EXPECT_EQ(alone.train.tp, 1);
}

}  // namespace
}  // namespace aisc
