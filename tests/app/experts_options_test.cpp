// The flags of experts, and what goes together with them.
#include <gtest/gtest.h>

#include "tests/app/parsed.h"

namespace aisc {
namespace {

using parsed::accepted;
using parsed::expect_refused;

TEST(ExpertsOptions, SayWhatExpertsThereAre) {
  const Options none = accepted({});
  EXPECT_EQ(none.train.model.experts.count, 0);
  EXPECT_FALSE(none.train.has_mesh());
  const Options some = accepted(
      {"--ranks",     "4", "--experts",       "8",    "--ep",       "2", "--tp",      "2",
       "--moe-every", "3", "--router",        "top2", "--capacity", "0", "--balance", "0.5",
       "--z-loss",    "0", "--shared-expert", "on"});
  const GptExperts& e = some.train.model.experts;
  EXPECT_EQ(e.count, 8);
  EXPECT_EQ(e.every, 3);
  EXPECT_EQ(e.router, "top2");
  EXPECT_EQ(e.chosen(), 2);
  EXPECT_EQ(e.capacity, 0);
  EXPECT_EQ(e.balance, 0.5);
  EXPECT_EQ(e.z_loss, 0);
  EXPECT_TRUE(e.shared);
  EXPECT_EQ(some.train.mesh(some.ranks).ep, 2);
}

// A run that goes on has its experts, and its layout unless another is given.
TEST(ExpertsOptions, AreRecorded) {
  const std::string earlier =
      accepted({"--ranks", "2", "--experts", "4", "--ep", "2", "--router", "bias"}).to_json();
  EXPECT_EQ(accepted({}, earlier).train.ep, 2);
  const Options alone = accepted({"--ranks", "1"}, earlier);
  EXPECT_EQ(alone.train.ep, 1);
  EXPECT_EQ(alone.train.model.experts.count, 4);
  EXPECT_EQ(alone.train.model.experts.router, "bias");
}

TEST(ExpertsOptions, RefuseWhatContradicts) {
  expect_refused(
      {{{"--router", "top2"}, "--router: only beside --experts"},
       {{"--capacity", "2"}, "--capacity: only beside --experts"},
       {{"--shared-expert", "on"}, "--shared-expert: only beside --experts"},
       {{"--ranks", "2", "--ep", "2"}, "--ep: only beside --experts"},
       {{"--ranks", "3", "--experts", "4", "--ep", "2"},
        "3 data-parallel ranks are no multiple of ep 2: as many share the experts"},
       {{"--ranks", "4", "--experts", "2", "--ep", "2", "--tp", "2"},
        "experts are 2, expected a multiple of ep 2 * tp 2: each rank has as many"},
       {{"--experts", "1", "--router", "top2"},
        "gpt: experts are 1, expected 2 or more: router top2 sends a token to as many"},
       {{"--experts", "2", "--moe-every", "4"},
        "gpt: experts in one of every 4 blocks, expected 1 to 3, the blocks there are"},
       {{"--experts", "2", "--balance", "-1"},
        "gpt: the experts' balance is -1, expected 0 or more"},
       {{"--ranks", "2", "--experts", "2", "--average-every", "2"},
        "--experts 2 and --average-every: ranks that step on their own each need all of the model"},
       {{"--ranks", "2", "--experts", "2", "--optimizer", "onebit-adam", "--clip", "0"},
        "--experts 2 and --optimizer onebit-adam: its errors are of ranks with a whole model"},
       {{"--experts", "2", "--optimizer", "adafactor"},
        "--experts 2 and --optimizer adafactor: its sums are of matrices, and weights of experts "
        "are stacks of them"},
       {{"--ranks", "2", "--pp", "2", "--micro-batches", "2", "--experts", "2",
         "--recompute-stages", "early", "--keep-mb", "1"},
        "--experts 2 and --keep-mb: what is made again sends again, and ranks whose experts have "
        "other tokens do not keep the same"},
       {{"--ranks", "4", "--pp", "2", "--micro-batches", "2", "--experts", "2", "--ep", "2",
         "--order", "dp,pp,tp"},
        "--ep 2 and --order: it says nothing of ranks that share experts"}});
}

}  // namespace
}  // namespace aisc
