// Flags of what lies on the host: which go together.
#include <gtest/gtest.h>

#include <vector>

#include "app/options.h"
#include "tests/app/parsed.h"

namespace aisc {
namespace {

using parsed::accepted;
using parsed::expect_refused;
using parsed::refusal;

TEST(OffloadOptions, SayWhichFlagsDoNotGoTogether) {
  expect_refused(
      {{{"--offload", "weights", "--zero", "1"},
        "--offload weights and --zero: the hosts of the ranks divide all there is"},
       {{"--offload", "all", "--average-every", "4"},
        "--offload all and --average-every: ranks that step on their own each need all of the "
        "model"},
       {{"--offload", "all", "--optimizer", "onebit-adam"},
        "--offload all and --optimizer onebit-adam: signs are of whole momenta"},
       {{"--offload", "all", "--optimizer", "adafactor"},
        "--offload all and --optimizer adafactor: its sums are of the device's weights"},
       {{"--ranks", "2", "--pp", "2", "--schedule", "zb-h1", "--offload", "weights"},
        "--offload weights and --schedule zb-h1: gradients go to the host behind a layer, "
        "zero-bubble schedules defer them"},
       {{"--ranks", "2", "--pp", "2", "--schedule", "2bw", "--offload", "weights"},
        "--offload weights and --schedule 2bw: weights of several versions are kept where updates "
        "do not wait"},
       {{"--offload", "weights", "--bucket-mb", "3"},
        "--bucket-mb and --offload weights: gradients go unit by unit"},
       {{"--device-memory-gb", "-1"}, "--device-memory-gb is -1, expected 0 or more"}});
  EXPECT_NE(refusal({"--offload", "disk"}).find("offload"), std::string::npos);
}

TEST(OffloadOptions, GoTogetherOtherwise) {
  const Options all = accepted({"--offload", "all", "--device-memory-gb", "1.5"});
  EXPECT_TRUE(all.offloads("weights") && all.offloads("activations"));
  EXPECT_EQ(all.device_memory_gb, 1.5);
  const Options saved = accepted({"--offload", "activations", "--zero", "3", "--ranks", "2"});
  EXPECT_FALSE(saved.offloads("weights"));
  EXPECT_TRUE(saved.offloads("activations"));
  accepted({"--ranks", "4", "--pp", "2", "--schedule", "zb-v", "--offload", "activations"});
  accepted({"--ranks", "4", "--pp", "2", "--offload", "all", "--recompute", "block"});
}

}  // namespace
}  // namespace aisc
