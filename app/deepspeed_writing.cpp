#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "app/deepspeed_config.h"
#include "common/core/dtype.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

// What the file says, or says nothing of since it is no part of a configuration: files, texts, the
// model, on which machine.
const std::set<std::string> kSaid = {"batch",
                                     "micro-batches",
                                     "ranks",
                                     "zero",
                                     "zero-group",
                                     "live",
                                     "reuse",
                                     "persist",
                                     "overlap",
                                     "bucket-mb",
                                     "clip",
                                     "precision",
                                     "gradients",
                                     "loss-scale",
                                     "loss-scale-init",
                                     "loss-scale-window",
                                     "loss-scale-hysteresis",
                                     "loss-scale-min",
                                     "optimizer",
                                     "onebit-warmup",
                                     "learning-rate",
                                     "weight-decay",
                                     "beta1",
                                     "beta2",
                                     "offload",
                                     "tier",
                                     "print-every",
                                     "wall-clock-breakdown",
                                     "steps",
                                     "warmup",
                                     "warmup-type",
                                     "decay",
                                     "min-learning-rate",
                                     "shard-activations",
                                     "prefetch"};
const std::set<std::string> kElsewhere = {"layers",
                                          "heads",
                                          "width",
                                          "context",
                                          "vocabulary",
                                          "corpus",
                                          "tokenizer",
                                          "validation",
                                          "out",
                                          "init",
                                          "resume",
                                          "recipe",
                                          "deepspeed-config",
                                          "to-deepspeed-config",
                                          "config",
                                          "sample",
                                          "sample-tokens",
                                          "temperature",
                                          "top-k",
                                          "top-p",
                                          "launcher",
                                          "device",
                                          "threads",
                                          "seed",
                                          "eval-interval",
                                          "eval-windows",
                                          "checkpoint-interval",
                                          "keep",
                                          "trace",
                                          "peak",
                                          "plan",
                                          "machine",
                                          "meta",
                                          "trace-file",
                                          "tokens",
                                          "allow-corpus-change"};

Json f16_block(const Options& o) {
  const Options::Compression& c = o.compression;
  Json block = {{"enabled", true}};
  block["loss_scale"] =
      o.has_dynamic_scale() || c.loss_scale == "auto" ? 0 : std::stod(c.loss_scale);
  if (!o.has_dynamic_scale()) return block;
  // PyTorch's rule, as far as this one has words for it.
  const bool theirs = c.loss_scale == "deepspeed";
  block["initial_scale_power"] = c.scale_init > 0 ? std::llround(std::log2(c.scale_init)) : 16;
  block["loss_scale_window"] = c.scale_window > 0 ? c.scale_window : theirs ? 1000 : 2000;
  block["hysteresis"] = c.scale_hysteresis > 0 ? c.scale_hysteresis : theirs ? 2 : 1;
  block["min_loss_scale"] = c.scale_min > 0 ? c.scale_min : 1;
  return block;
}

Json zero_block(const Options& o) {
  const Options::Sharding& s = o.sharding;
  const bool weights = o.offloads("weights"), optimizer = o.offloads("optimizer");
  const int stage = weights ? 3 : optimizer && s.zero == 0 ? 2 : s.zero;
  Json block = {{"stage", stage}};
  if (stage == 0) {
    block["overlap_comm"] = o.data_parallel.overlap;
    block["reduce_bucket_size"] =
        std::llround(o.data_parallel.bucket_mb * (1 << 20) /
                     static_cast<double>(size_of(o.train.gradient_dtype)));
  }
  if (stage == 3 && !weights) {
    // 0 says here that there is no limit.
    block["stage3_max_live_parameters"] = s.live > 0 ? s.live : 1'000'000'000'000;
    block["stage3_max_reuse_distance"] = s.reuse;
    block["stage3_param_persistence_threshold"] = s.persist;
    block["stage3_prefetch_bucket_size"] =
        std::llround(std::ceil(s.prefetch * o.train.model.block_weights_per_token()));
    if (s.group > 0) block["mics_shard_size"] = s.group;
  }
  Json device = {{"device", o.tier.empty() ? "cpu" : "nvme"}};
  if (!o.tier.empty()) device["nvme_path"] = o.tier.substr(o.tier.find(':') + 1);
  if (weights || optimizer) block["offload_optimizer"] = device;
  if (weights) block["offload_param"] = device;
  return block;
}

Json optimizer_block(const Options& o) {
  Json params = {{"lr", o.train.learning_rate},
                 {"betas", {o.train.beta1, o.train.beta2}},
                 {"eps", 1e-8},
                 {"weight_decay", o.train.weight_decay}};
  if (o.onebit_adam() && o.data_parallel.onebit_warmup > 0)
    params["freeze_step"] = o.data_parallel.onebit_warmup;
  return {{"type", o.onebit_adam() ? "OneBitAdam" : "AdamW"}, {"params", params}};
}

Json scheduler_block(const TrainConfig& t) {
  const std::string warmup = t.warmup == Warmup::Log ? "log" : "linear";
  // DeepSpeed refuses a warm-up of 0 steps: of one that was asked for, to_deepspeed() says so.
  const std::int64_t steps = std::max<std::int64_t>(1, t.warmup_steps);
  // A straight line ends at 0 there; of one that does not, to_deepspeed() says so.
  if (t.decay == Decay::Linear)
    return {{"type", "WarmupDecayLR"},
            {"params",
             {{"total_num_steps", t.steps},
              {"warmup_max_lr", t.learning_rate},
              {"warmup_num_steps", steps},
              {"warmup_type", warmup}}}};
  return {{"type", "WarmupCosineLR"},
          {"params",
           {{"total_num_steps", t.steps},
            {"warmup_num_steps", steps},
            {"warmup_type", warmup},
            {"cos_min_ratio", t.min_learning_rate / t.learning_rate}}}};
}

}  // namespace

WrittenConfig to_deepspeed(const Options& o) {
  const TrainConfig& t = o.train;
  const std::int64_t dp = t.data_ranks(o.ranks);
  Json all = {{"train_batch_size", t.batch},
              {"train_micro_batch_size_per_gpu", t.batch / dp / t.micro_batches},
              {"gradient_accumulation_steps", t.micro_batches}};
  if (o.print_every > 0) all["steps_per_print"] = o.print_every;
  all["wall_clock_breakdown"] = o.wall_clock;
  all["gradient_clipping"] = t.clip;
  if (t.model.dtype == DType::F16) all["fp16"] = f16_block(o);
  if (t.model.dtype == DType::BF16) all["bf16"] = {{"enabled", true}};
  if (t.gradient_dtype == DType::F32 && t.model.dtype != DType::F32)
    all["data_types"] = {{"grad_accum_dtype", "fp32"}};
  all["zero_optimization"] = zero_block(o);
  if (!o.adafactor()) all["optimizer"] = optimizer_block(o);
  if (!o.adafactor()) all["scheduler"] = scheduler_block(t);
  if (o.sharding.activations) all["activation_checkpointing"] = {{"partition_activations", true}};
  WrittenConfig written{all.dump(2) + "\n", {}};
  for (const std::string& flag : o.given) {
    const bool is_lost = !kSaid.contains(flag) && !kElsewhere.contains(flag);
    const bool has_word = flag != "optimizer" || !o.adafactor();
    const bool activations_stay = flag != "offload" || !o.offloads("activations");
    const bool has_groups = flag != "zero-group" || o.sharding.zero == 3 || o.sharding.group == 0;
    const bool has_type = flag != "precision" || !o.compression.f8;
    const bool ends_there =
        flag != "min-learning-rate" || t.decay == Decay::Cosine || t.min_learning_rate == 0;
    const bool warms_up = flag != "warmup" || t.warmup_steps > 0;
    if (is_lost || !has_word || !activations_stay || !has_groups || !has_type || !ends_there ||
        !warms_up)
      written.without.push_back(flag);
  }
  return written;
}

}  // namespace aisc
