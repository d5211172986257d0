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
       {{"--offload", "optimizer", "--optimizer", "adafactor"},
        "--offload optimizer and --optimizer adafactor: its sums are of the device's weights"},
       {{"--ranks", "2", "--offload", "optimizer", "--zero", "3", "--shard-by", "owners"},
        "--offload optimizer and --shard-by owners: each host updates its slice of every unit"},
       {{"--ranks", "2", "--pp", "2", "--schedule", "zb-h1", "--offload", "optimizer"},
        "--offload optimizer and --schedule zb-h1: gradients go to the host behind a layer, "
        "zero-bubble schedules defer them"},
       {{"--delayed-update"},
        "--delayed-update: only beside --offload optimizer, whose weights the device has, too"},
       {{"--delayed-update", "--offload", "all"},
        "--delayed-update: only beside --offload optimizer, whose weights the device has, too"},
       {{"--delay-after", "3", "--offload", "optimizer"},
        "--delay-after: only beside --delayed-update"},
       {{"--delayed-update", "--offload", "optimizer", "--experts", "4", "--router", "bias"},
        "--delayed-update and --router bias: its bias moves with every step"},
       {{"--tier", "disk:/tmp"}, "--tier: only beside --offload"},
       {{"--tier", "/tmp", "--offload", "all"}, "--tier is /tmp, expected disk:FOLDER"},
       {{"--tier", "disk:", "--offload", "all"}, "--tier is disk:, expected disk:FOLDER"},
       {{"--tier", "disk:/tmp", "--offload", "all", "--machine", "dgx-2"},
        "--tier and --machine: a disk takes no virtual time"},
       {{"--recompute", "auto"},
        "--recompute auto and no limit: expected --device-memory-gb, or --machine"},
       {{"--recompute", "auto", "--device-memory-gb", "1", "--ranks", "2", "--pp", "2"},
        "--recompute auto and --pp: stages hold several micro-batches at a time"},
       {{"--recompute", "auto", "--device-memory-gb", "1", "--offload", "all"},
        "--recompute auto and --offload all: it says itself which activations go to the host"},
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
  const Options optimizer = accepted({"--offload", "optimizer,activations", "--delayed-update"});
  EXPECT_TRUE(optimizer.offloads("optimizer") && optimizer.offloads("activations"));
  EXPECT_FALSE(optimizer.offloads("weights"));
  EXPECT_TRUE(optimizer.delayed_update);
  accepted({"--ranks", "2", "--offload", "optimizer", "--zero", "3"});
  EXPECT_EQ(accepted({"--offload", "weights", "--tier", "disk:/tmp"}).tier, "disk:/tmp");
  accepted({"--recompute", "auto", "--device-memory-gb", "1", "--offload", "weights"});
  accepted({"--ranks", "4", "--pp", "2", "--offload", "all", "--recompute", "block"});
}

}  // namespace
}  // namespace aisc
