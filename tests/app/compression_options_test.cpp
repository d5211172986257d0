// Flags of fewer bits, fewer weights and a teacher: which go together, and what follows from them.
#include <gtest/gtest.h>

#include "app/options.h"
#include "tests/app/parsed.h"

namespace aisc {
namespace {

using parsed::accepted;
using parsed::expect_refused;

TEST(CompressionOptions, SayWhichFlagsDoNotGoTogether) {
  expect_refused(
      {{{"--precision", "f16", "--average-every", "4"},
        "--precision f16 and --average-every: ranks that step on their own would skip different "
        "steps; --loss-scale 1"},
       {{"--loss-scale", "dynamic", "--optimizer", "onebit-adam"},
        "--loss-scale dynamic and --optimizer onebit-adam: gradients that are never summed tell "
        "nobody that they overflow; --loss-scale 1"},
       {{"--loss-scale", "64", "--ranks", "2", "--pp", "2", "--schedule", "2bw"},
        "--loss-scale 64 and --schedule 2bw: stages that update on their way cannot skip a step "
        "together; --loss-scale 1"},
       {{"--loss-scale", "0"}, "--loss-scale is 0, expected more than 0"},
       {{"--loss-scale-window", "5"},
        "--loss-scale-window: only beside --loss-scale dynamic or deepspeed, or --precision f16"},
       {{"--precision", "f16", "--loss-scale", "64", "--loss-scale-min", "5"},
        "--loss-scale-min: only beside --loss-scale dynamic or deepspeed, or --precision f16"},
       {{"--f8-scale", "tensor"}, "--f8-scale: only beside --precision f8"},
       {{"--precision", "bf16", "--f8-layers", "head"}, "--f8-layers: only beside --precision f8"},
       {{"--quantize-aware", "int8", "--device", "cuda"},
        "--quantize-aware and --device: it computes on the host"},
       {{"--quantize-aware", "int4", "--ranks", "2", "--pp", "2", "--schedule", "2bw"},
        "--quantize-aware and --schedule 2bw: weights of several versions are kept where updates "
        "do not wait"},
       {{"--sparsity", "1"}, "--sparsity is 1, expected 0 or more, less than 1"},
       {{"--sparsity", "-0.5"}, "--sparsity is -0.5, expected 0 or more, less than 1"},
       {{"--sparsity", "0.5", "--average-every", "4"},
        "--sparsity and --average-every: ranks that step on their own would prune different "
        "weights"},
       {{"--sparsity", "0.5", "--offload", "optimizer", "--delayed-update"},
        "--sparsity and --delayed-update: what the host updates later comes back"},
       {{"--saved-as", "bf16", "--device", "cuda"},
        "--saved-as and --device: it computes on the host"},
       {{"--saved-as", "f8", "--recompute", "auto", "--device-memory-gb", "1"},
        "--recompute auto and --saved-as: it counts what is kept plain"},
       {{"--prune-rounds", "5"}, "--prune-rounds: only beside --sparsity"},
       {{"--distill-hard", "1"}, "--distill-hard: only beside --distill"},
       {{"--power-sgd", "4", "--device", "cuda"},
        "--power-sgd and --device: it computes on the host"},
       {{"--power-sgd", "4", "--average-every", "4"},
        "--power-sgd and --average-every: local steps send no gradients"},
       {{"--power-sgd", "4", "--optimizer", "onebit-adam"},
        "--power-sgd and --optimizer onebit-adam: one sends factors, one sends signs"},
       {{"--power-sgd", "4", "--ranks", "2", "--zero", "1"},
        "--power-sgd and --zero: factors are of whole matrices"},
       {{"--power-sgd", "4", "--offload", "optimizer"},
        "--power-sgd and --offload optimizer: factors are made where layers compute, of whole "
        "matrices"},
       {{"--power-sgd", "4", "--loss-scale", "dynamic"},
        "--power-sgd and a loss scale that changes: what is left of one step would have another "
        "scale in the next; --loss-scale 1"},
       {{"--power-sgd", "4", "--precision", "bf16"},
        "--power-sgd: --gradients f32 expected, found BF16: errors add up over steps"},
       {{"--stage-links", "int8"}, "--stage-links: only beside --pp"},
       {{"--stage-links", "int8", "--ranks", "2", "--pp", "2", "--device", "cuda"},
        "--stage-links and --device: it computes on the host"}});
}

TEST(CompressionOptions, GoTogetherOtherwise) {
  const Options half = accepted({"--precision", "f16"});
  EXPECT_EQ(half.train.model.dtype, DType::F16);
  EXPECT_EQ(half.train.gradient_dtype, DType::F16);
  EXPECT_TRUE(half.has_dynamic_scale());
  EXPECT_FALSE(accepted({"--precision", "f16", "--loss-scale", "1024"}).has_dynamic_scale());
  EXPECT_FALSE(accepted({"--precision", "bf16"}).has_dynamic_scale());
  EXPECT_TRUE(accepted({"--precision", "bf16", "--loss-scale", "deepspeed"}).has_dynamic_scale());
  accepted({"--precision", "f16", "--loss-scale", "1", "--average-every", "7"});
  EXPECT_EQ(accepted({"--precision", "f16", "--gradients", "f32"}).train.gradient_dtype,
            DType::F32);
  const Options eight = accepted({"--precision", "f8", "--f8-layers", "linears,head"});
  EXPECT_TRUE(eight.compression.f8);
  EXPECT_TRUE(accepted({"--precision", "f8", "--device", "cuda"}).compression.f8);
  EXPECT_EQ(eight.train.model.dtype, DType::BF16);
  EXPECT_EQ(accepted({"--sparsity", "0.9", "--prune-rounds", "8"}).compression.prune_rounds, 8);
  EXPECT_EQ(accepted({"--power-sgd", "4", "--precision", "bf16", "--gradients", "f32"})
                .compression.power_sgd,
            4);
  EXPECT_EQ(accepted({"--stage-links", "int8-forward", "--ranks", "2", "--pp", "2"})
                .compression.stage_links,
            "int8-forward");
}

// What config.json keeps gives the same options again; a flag that comes later counts more.
TEST(CompressionOptions, AreKeptForARunThatGoesOn) {
  const Options eight = accepted({"--precision", "f8", "--f8-scale", "tensor"});
  const Options again = accepted({}, eight.to_json());
  EXPECT_TRUE(again.compression.f8);
  EXPECT_EQ(again.compression.f8_scale, "tensor");
  EXPECT_EQ(again.to_json(), eight.to_json());
  const Options other = accepted({"--precision", "bf16"}, eight.to_json());
  EXPECT_FALSE(other.compression.f8);
  EXPECT_EQ(other.train.model.dtype, DType::BF16);
  const Options scaled =
      accepted({"--precision", "f16", "--loss-scale", "deepspeed", "--loss-scale-init", "1024"});
  EXPECT_EQ(accepted({}, scaled.to_json()).to_json(), scaled.to_json());
}

}  // namespace
}  // namespace aisc
