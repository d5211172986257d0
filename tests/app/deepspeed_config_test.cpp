// A file of DeepSpeed's is flags of this program; what is wrong with it is said with its line.
#include "app/deepspeed_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/core/system/files.h"
#include "tests/app/parsed.h"
#include "tests/support/error_says.h"
#include "tests/support/temporary_folder.h"

namespace aisc {
namespace {

using parsed::accepted;
using parsed::Flags;
using parsed::refusal;

const std::string kExample = AISC_SOURCE_DIR "/tests/fixtures/deepspeed/ds_config.json";

class DeepSpeedConfigs : public testing::Test {
 protected:
  // The published example with one text in place of another.
  std::string variant(const std::string& from, const std::string& to) {
    std::string text = read_file(kExample);
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return file(text.replace(at, from.size(), to));
  }
  std::string file(const std::string& text) {
    write_file(path_, text);
    return path_;
  }
  Flags with(const Flags& more = {"--ranks", "2"}) {
    flag_ = "--deepspeed-config=" + path_;
    Flags flags{flag_.c_str()};
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  }
  // What is said of the variant, behind the file's name.
  std::string refused(const std::string& from, const std::string& to,
                      const Flags& more = {"--ranks", "2"}) {
    variant(from, to);
    const std::string said = refusal(with(more)), before = "train_gpt: " + path_;
    EXPECT_TRUE(said.starts_with(before)) << said;
    return said.size() > before.size() ? said.substr(before.size()) : said;
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.path("ds.json"), flag_;
};

TEST_F(DeepSpeedConfigs, ThePublishedExampleIsTakenAsItIs) {
  file(read_file(kExample));
  const Options o = accepted(with());
  EXPECT_EQ(o.train.batch, 64);
  EXPECT_EQ(o.train.micro_batches, 1);
  EXPECT_EQ(o.sharding.zero, 3);
  EXPECT_EQ(o.sharding.live, 1'000'000'000);
  EXPECT_EQ(o.sharding.reuse, 1'000'000'000);
  EXPECT_EQ(o.sharding.persist, 100'000);
  EXPECT_EQ(o.sharding.prefetch, 3) << "all of the layers have fewer than 1e7 weights";
  EXPECT_EQ(o.train.clip, 1);
  EXPECT_EQ(o.train.model.dtype, DType::F16);
  EXPECT_EQ(o.compression.loss_scale, "deepspeed");
  EXPECT_EQ(o.compression.scale_window, 1000);
  EXPECT_EQ(o.compression.scale_hysteresis, 2);
  EXPECT_EQ(o.compression.scale_min, 1);
  EXPECT_EQ(o.print_every, 1);
  EXPECT_TRUE(o.wall_clock);
  // What changes nothing is said: two of ZeRO's knobs, and who may be its optimizer.
  ASSERT_EQ(o.remarks.size(), 3u);
  EXPECT_TRUE(o.remarks[0].starts_with(path_ + ":11: zero_optimization.reduce_bucket_size"));
  EXPECT_TRUE(o.remarks[1].starts_with(path_ + ":12: zero_optimization.contiguous_gradients"));
  EXPECT_TRUE(o.remarks[2].starts_with(path_ + ":17: zero_allow_untested_optimizer"));
}

TEST_F(DeepSpeedConfigs, BrokenVariantsAreRefusedWithTheirLines) {
  const std::string same =
      ": expected train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps "
      "x data-parallel ranks";
  EXPECT_EQ(refused("\"stage\"", "\"stages\""),
            ":6: zero_optimization.stages: is no key of DeepSpeed's configuration that is known "
            "here");
  EXPECT_EQ(refused("steps_per_print", "step_per_print"),
            ":4: step_per_print: is no key of DeepSpeed's configuration that is known here");
  EXPECT_EQ(refused("\"stage\": 3", "\"stage\": 4"),
            ":6: zero_optimization.stage: found 4, expected 0, 1, 2 or 3");
  EXPECT_EQ(refused("64", "\"auto\""),
            ":2: train_batch_size: found \"auto\", expected a whole number, 1 or more");
  EXPECT_EQ(refused("64", "64.5"),
            ":2: train_batch_size: found 64.5, expected a whole number, 1 or more");
  EXPECT_EQ(refused("\"contiguous_gradients\": true", "\"contiguous_gradients\": false"),
            ":12: zero_optimization.contiguous_gradients: found false, expected true: gradients of "
            "a unit lie together");
  EXPECT_EQ(refused("\"contiguous_gradients\"", "\"zero_quantized_weights\""),
            ":12: zero_optimization.zero_quantized_weights: DeepSpeed knows it, but it is not "
            "possible here: weights are gathered in their own type");
  EXPECT_EQ(refused("\"contiguous_gradients\": true", "\"zero_hpz_partition_size\": 8"),
            ":12: zero_optimization.zero_hpz_partition_size: DeepSpeed knows it, but it is not "
            "possible here: it is a second copy of the weights alone; mics_shard_size divides all "
            "states in groups");
  EXPECT_EQ(refused("\"contiguous_gradients\": true", "\"mics_shard_size\": -2"),
            ":12: zero_optimization.mics_shard_size: found -2, expected a whole number, 0 or more");
  EXPECT_EQ(refused("1.0", "-1"), ":14: gradient_clipping: found -1, expected a number, 0 or more");
  EXPECT_EQ(refused("\"stage\": 3,", "\"stage\": 3, \"stage\": 2,"),
            ":6: \"stage\" stands twice, first in line 6");
  EXPECT_EQ(refused("\"wall_clock", "\"bf16\": {\"enabled\": true}, \"wall_clock"),
            ":16: bf16.enabled: fp16.enabled is true, too: expected one of them");
  EXPECT_EQ(refused("\"gradient_acc", "\"train_micro_batch_size_per_gpu\": 3, \"gradient_acc"),
            ": train_batch_size 64, train_micro_batch_size_per_gpu 3, gradient_accumulation_steps "
            "1, data-parallel ranks 2" +
                same);
  EXPECT_EQ(refused("1.0", "1.0", {"--ranks", "3"}),
            ": train_batch_size 64, gradient_accumulation_steps 1, data-parallel ranks 3" + same);
  EXPECT_TRUE(refused("64,", "64").starts_with(":3: not JSON: "));
  EXPECT_EQ(refused("\"fp16\"", "\"optimizer\": {\"type\": \"Lamb\"}, \"fp16\""),
            ":15: optimizer.type: found \"Lamb\", expected \"AdamW\" or \"Adam\" or "
            "\"OneBitAdam\"");
}

TEST_F(DeepSpeedConfigs, TheCommandLineOverridesButDoesNotSayTheBatchTwice) {
  file(read_file(kExample));
  EXPECT_EQ(accepted(with({"--ranks", "2", "--clip", "2", "--prefetch", "1"})).train.clip, 2);
  EXPECT_EQ(accepted(with({"--ranks", "2", "--prefetch", "1"})).sharding.prefetch, 1);
  EXPECT_EQ(refusal(with({"--batch", "8"})), "train_gpt: --batch: " + path_ +
                                                 ":2: train_batch_size, " + path_ +
                                                 ":3: gradient_accumulation_steps say it already");
}

TEST_F(DeepSpeedConfigs, FlagsThatDoNotGoTogetherSayWhereTheyComeFrom) {
  file(read_file(kExample));
  const std::string said = parsed::refusal_in_full(with({"--ranks", "2", "--average-every", "4"}));
  EXPECT_NE(said.find("--zero comes from " + path_ + ":6: zero_optimization.stage\n"),
            std::string::npos)
      << said;
}

TEST(DeepSpeedBatch, OneThatIsMissingFollowsFromTheOthers) {
  const auto found = [](const DeepSpeedBatch& batch, int ranks) {
    const StepBatch step = step_batch(batch, ranks);
    return std::pair(step.batch, step.micro_batches);
  };
  using Pair = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(found({.train = 64}, 4), Pair(64, 1));
  EXPECT_EQ(found({.micro = 3}, 4), Pair(12, 1));
  EXPECT_EQ(found({.train = 64, .micro = 4}, 4), Pair(64, 4));
  EXPECT_EQ(found({.train = 64, .accumulation = 2}, 4), Pair(64, 2));
  EXPECT_EQ(found({.micro = 3, .accumulation = 5}, 4), Pair(60, 5));
  EXPECT_EQ(found({.train = 24, .micro = 3, .accumulation = 2}, 4), Pair(24, 2));
  for (const DeepSpeedBatch& wrong : std::vector<DeepSpeedBatch>{{.train = 6},
                                                                 {.train = 64, .micro = 3},
                                                                 {.train = 64, .micro = 32},
                                                                 {.train = 8, .accumulation = 4}})
    EXPECT_TRUE(error_says([&] { step_batch(wrong, 4); }, {"data-parallel ranks 4: expected"}));
  EXPECT_TRUE(error_says([] { step_batch({.accumulation = 2}, 4); },
                         {"gradient_accumulation_steps 2", "expected train_batch_size or"}));
}

TEST_F(DeepSpeedConfigs, BlocksAreFlags) {
  file(R"({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3,
    "bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"},
    "optimizer": {"type": "Adam", "params": {"lr": 2e-4, "betas": [0.8, 0.99]}},
    "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 500, "cos_min_ratio": 0.5,
      "warmup_num_steps": 20, "warmup_type": "linear"}},
    "zero_optimization": {"stage": 0, "reduce_bucket_size": 1048576, "overlap_comm": false}})");
  const Options o = accepted(with());
  EXPECT_EQ(o.train.batch, 12);
  EXPECT_EQ(o.train.micro_batches, 3);
  EXPECT_EQ(o.train.model.dtype, DType::BF16);
  EXPECT_EQ(o.train.gradient_dtype, DType::F32);
  EXPECT_EQ(o.train.learning_rate, 2e-4);
  EXPECT_EQ(o.train.min_learning_rate, 1e-4);
  EXPECT_EQ(o.train.warmup_steps, 20);
  EXPECT_EQ(o.train.steps, 500);
  EXPECT_EQ(o.train.beta1, .8);
  EXPECT_EQ(o.train.beta2, .99);
  EXPECT_EQ(o.train.weight_decay, 0) << "what is not in the block is DeepSpeed's value";
  EXPECT_EQ(o.data_parallel.bucket_mb, 4);
  EXPECT_FALSE(o.data_parallel.overlap);
}

// What its schedulers are: from 0 to a rate, by a logarithm where nothing is said, and what
// follows.
TEST_F(DeepSpeedConfigs, SchedulersAreFlags) {
  const auto schedule = [&](const std::string& type, const std::string& params) {
    file(R"({"train_batch_size": 8, "optimizer": {"type": "Adam", "params": {"lr": 0.5}},
      "scheduler": {"type": ")" +
         type + "\", \"params\": {" + params + "}}}");
    return accepted(with()).train;
  };
  const TrainConfig line = schedule("WarmupDecayLR", R"("total_num_steps": 70,
      "warmup_max_lr": 0.25, "warmup_num_steps": 7)");
  EXPECT_EQ(line.decay, Decay::Linear);
  EXPECT_EQ(line.warmup, Warmup::Log);
  EXPECT_EQ(line.learning_rate, .25);
  EXPECT_EQ(line.min_learning_rate, 0);
  EXPECT_EQ(line.warmup_steps, 7);
  EXPECT_EQ(line.steps, 70);
  const TrainConfig flat = schedule("WarmupLR", R"("warmup_type": "linear")");
  EXPECT_EQ(flat.warmup, Warmup::Linear);
  EXPECT_EQ(flat.decay, Decay::Cosine);
  EXPECT_EQ(flat.learning_rate, .5) << "the optimizer's, where it has none of its own";
  EXPECT_EQ(flat.min_learning_rate, .5) << "it stays";
  EXPECT_EQ(flat.warmup_steps, 1000);
  const TrainConfig cosine = schedule("WarmupCosineLR", R"("total_num_steps": 9)");
  EXPECT_EQ(cosine.warmup, Warmup::Log);
  EXPECT_EQ(cosine.learning_rate, .5);
}

// MiCS, which DeepSpeed has in stage 3.
TEST_F(DeepSpeedConfigs, GroupsOfShardsAreAFlag) {
  const auto found = [&](const std::string& block) {
    file("{\"train_batch_size\": 8, \"zero_optimization\": {" + block + "}}");
    return accepted(with({"--ranks", "4"}));
  };
  const Options groups =
      found("\"stage\": 3, \"mics_shard_size\": 2, \"mics_hierarchical_params_gather\": true");
  EXPECT_EQ(groups.sharding.group, 2);
  ASSERT_EQ(groups.remarks.size(), 1u);
  EXPECT_TRUE(
      groups.remarks[0].ends_with("changes nothing: --algorithm says how weights are "
                                  "gathered"))
      << groups.remarks[0];
  for (const char* none : {"-1", "0"}) {
    const Options all = found(std::string("\"stage\": 3, \"mics_shard_size\": ") + none);
    EXPECT_EQ(all.sharding.group, 0);
    EXPECT_TRUE(all.remarks[0].ends_with("shards lie on all data-parallel ranks"));
  }
  const Options other = found("\"stage\": 2, \"mics_shard_size\": 2");
  EXPECT_EQ(other.sharding.group, 0);
  EXPECT_TRUE(other.remarks[0].ends_with("mics_shard_size changes nothing: the stage is 2"));
  const std::string cpu = "{\"device\": \"cpu\"}";
  file("{\"train_batch_size\": 8, \"zero_optimization\": {\"stage\": 3, \"offload_param\": " + cpu +
       ", \"offload_optimizer\": " + cpu + ", \"mics_shard_size\": 2}}");
  EXPECT_NE(
      refusal(with({"--ranks", "4"}))
          .find("mics_shard_size: weights leave to the hosts of all ranks, which divide them"),
      std::string::npos);
  file("{\"train_batch_size\": 8, \"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": 3}}");
  EXPECT_NE(parsed::refusal_in_full(with({"--ranks", "4"}))
                .find("--zero-group comes from " + path_ + ":1: zero_optimization.mics_shard_size"),
            std::string::npos);
}

TEST_F(DeepSpeedConfigs, OffloadBlocksAreFlags) {
  const auto offload = [&](const std::string& block) {
    file("{\"train_batch_size\": 8, \"zero_optimization\": {" + block + "}}");
    return accepted(with());
  };
  const std::string cpu = "{\"device\": \"cpu\", \"pin_memory\": true}";
  EXPECT_EQ(offload("\"stage\": 2, \"offload_optimizer\": " + cpu).offload, "optimizer");
  EXPECT_EQ(offload("\"stage\": 3, \"offload_optimizer\": " + cpu).sharding.zero, 3);
  const Options all =
      offload("\"stage\": 3, \"offload_optimizer\": " + cpu + ", \"offload_param\": " + cpu);
  EXPECT_EQ(all.offload, "weights");
  EXPECT_EQ(all.sharding.zero, 0) << "the hosts of the ranks divide all there is";
  const std::string disk = "{\"device\": \"nvme\", \"nvme_path\": \"/scratch\"}";
  EXPECT_EQ(offload("\"stage\": 3, \"offload_optimizer\": " + disk).tier, "disk:/scratch");
  for (const auto& [block, said] : std::vector<std::pair<std::string, std::string>>{
           {"\"stage\": 0, \"offload_optimizer\": " + cpu, "the stage is 0: expected 1, 2 or 3"},
           {"\"stage\": 2, \"offload_param\": " + cpu, "the stage is 2: expected 3"},
           {"\"stage\": 3, \"offload_param\": " + cpu, "expected offload_optimizer with the same"},
           {"\"stage\": 1, \"offload_optimizer\": {\"device\": \"nvme\"}", "expected nvme_path"},
           {"\"stage\": 1, \"offload_optimizer\": {\"device\": \"tape\"}",
            "\"none\" or \"cpu\""}}) {
    file("{\"train_batch_size\": 8, \"zero_optimization\": {" + block + "}}");
    EXPECT_NE(refusal(with()).find(said), std::string::npos) << refusal(with());
  }
}

// What is written of flags gives the same flags again.
TEST_F(DeepSpeedConfigs, IsWrittenAndReadBack) {
  for (const Flags& flags : std::vector<Flags>{
           {"--ranks", "2", "--batch", "12", "--micro-batches", "3", "--zero", "3", "--live", "99",
            "--persist", "7", "--prefetch", "2", "--precision", "f16"},
           {"--ranks", "2", "--bucket-mb", "3", "--overlap", "off", "--precision", "bf16",
            "--gradients", "f32", "--learning-rate", "0.003"},
           {"--ranks", "2", "--offload", "optimizer", "--zero", "1", "--clip", "0"},
           {"--ranks", "2", "--decay", "linear", "--min-learning-rate", "0", "--warmup", "7"},
           {"--ranks", "2", "--warmup-type", "log", "--warmup", "7"},
           {"--ranks", "2", "--offload", "weights", "--tier", "disk:/x"},
           {"--ranks", "2", "--precision", "f16", "--loss-scale", "512", "--print-every", "9"},
           {"--ranks", "2", "--zero", "3", "--zero-group", "1"},
           {"--ranks", "2", "--optimizer", "onebit-adam", "--onebit-warmup", "50"}}) {
    const Options before = accepted(flags);
    const WrittenConfig written = to_deepspeed(before);
    EXPECT_TRUE(written.without.empty()) << written.without[0];
    file(written.json);
    const Options after = accepted(with());
    EXPECT_EQ(to_deepspeed(after).json, written.json);
    EXPECT_EQ(after.train.batch, before.train.batch);
    EXPECT_EQ(after.train.micro_batches, before.train.micro_batches);
    EXPECT_EQ(after.train.learning_rate, before.train.learning_rate);
    for (const std::int64_t step : {0, 5, 100})
      EXPECT_DOUBLE_EQ(after.train.rates().at(step), before.train.rates().at(step));
    EXPECT_EQ(after.train.model.dtype, before.train.model.dtype);
    EXPECT_EQ(after.sharding.zero, before.sharding.zero);
    EXPECT_EQ(after.sharding.group, before.sharding.group);
    EXPECT_EQ(after.sharding.prefetch, before.sharding.prefetch);
    EXPECT_EQ(after.offload, before.offload);
    EXPECT_EQ(after.tier, before.tier);
    EXPECT_EQ(after.train.clip, before.train.clip);
    EXPECT_EQ(after.optimizer, before.optimizer);
  }
  const Options tensor = accepted({"--ranks", "2", "--tp", "2", "--optimizer", "adafactor"});
  EXPECT_EQ(to_deepspeed(tensor).without, (std::vector<std::string>{"optimizer", "tp"}));
  EXPECT_EQ(to_deepspeed(accepted({"--precision", "f8"})).without,
            std::vector<std::string>{"precision"});
  EXPECT_EQ(to_deepspeed(accepted({"--decay", "linear", "--min-learning-rate", "1e-4"})).without,
            std::vector<std::string>{"min-learning-rate"})
      << "WarmupDecayLR ends at 0";
  EXPECT_EQ(to_deepspeed(accepted({"--warmup", "0"})).without, std::vector<std::string>{"warmup"})
      << "DeepSpeed's has a step or more";
  EXPECT_EQ(to_deepspeed(accepted({"--ranks", "2", "--zero", "1", "--zero-group", "1"})).without,
            std::vector<std::string>{"zero-group"});
}

}  // namespace
}  // namespace aisc
