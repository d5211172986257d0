#include "app/deepspeed_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/deepspeed_keys.h"
#include "app/deepspeed_reader.h"
#include "common/core/error.h"

namespace aisc {

StepBatch step_batch(const DeepSpeedBatch& b, int data_ranks) {
  const auto said = [](const char* key, std::optional<std::int64_t> value) {
    return value ? fmt::format("{} {}, ", key, *value) : "";
  };
  const std::string found = said("train_batch_size", b.train) +
                            said("train_micro_batch_size_per_gpu", b.micro) +
                            said("gradient_accumulation_steps", b.accumulation) +
                            fmt::format("data-parallel ranks {}", data_ranks);
  if (!b.train && !b.micro)
    fail(fmt::format("{}: expected train_batch_size or train_micro_batch_size_per_gpu", found));
  const std::int64_t dp = data_ranks;
  const std::int64_t parts = b.accumulation       ? *b.accumulation
                             : b.train && b.micro ? *b.train / dp / *b.micro
                                                  : 1;
  const std::int64_t batch = b.train ? *b.train : *b.micro * parts * dp;
  const std::int64_t micro = b.micro ? *b.micro : batch / dp / std::max<std::int64_t>(parts, 1);
  if (micro < 1 || micro * parts * dp != batch)
    fail(
        fmt::format("{}: expected train_batch_size = train_micro_batch_size_per_gpu x "
                    "gradient_accumulation_steps x data-parallel ranks",
                    found));
  return {batch, parts};
}

void DeepSpeedReader::batch() {
  const auto take = [&](const char* key, std::optional<std::int64_t>& to) {
    const auto s = file_.take(key);
    if (!s) return;
    to = s->whole(1);
    config_.batch_place_ += (config_.batch_place_.empty() ? "" : ", ") + s->place();
  };
  take("train_batch_size", config_.batch_.train);
  take("train_micro_batch_size_per_gpu", config_.batch_.micro);
  take("gradient_accumulation_steps", config_.batch_.accumulation);
}

void DeepSpeedReader::others() {
  real_flag("gradient_clipping", "clip");
  whole_flag("steps_per_print", "print-every", 1);
  if (const auto s = file_.take("wall_clock_breakdown"); s && s->on())
    flag("wall-clock-breakdown", "on", *s);
  if (const auto s = file_.take("activation_checkpointing.partition_activations"); s && s->on())
    flag("shard-activations", "on", *s);
  if (const auto s = file_.take("activation_checkpointing.cpu_checkpointing"); s && s->on())
    s->complain(
        "blocks that are recomputed keep their input on the device; --offload "
        "activations moves what others keep");
  // Other programs that watch a run are told nothing.
  for (const char* block :
       {"flops_profiler", "comms_logger", "tensorboard", "wandb", "csv_monitor", "comet"}) {
    if (is_on(std::string(block) + ".enabled"))
      fail(
          fmt::format("{}: {}.enabled: the run's report, trace.json and metrics.jsonl have what "
                      "it shows: expected false",
                      file_.path(), block));
    set_aside(block, "it is not enabled");
  }
}

void DeepSpeedReader::fixed() {
  for (const Setting& s : file_.left()) {
    const DeepSpeedKey* key = deepspeed_key(s.key);
    if (!key || key->possible == DeepSpeedKey::Possible::No) continue;
    const bool expected = key->possible == DeepSpeedKey::Possible::True;
    if (key->possible != DeepSpeedKey::Possible::Any && s.on() != expected)
      s.refuse(fmt::format("{}: {}", expected, key->why));
    remark(*file_.take(s.key), key->why);
  }
}

void DeepSpeedReader::refuse_what_is_left() {
  for (const Setting& s : file_.left()) {
    if (const DeepSpeedKey* key = deepspeed_key(s.key))
      s.complain(std::string("DeepSpeed knows it, but it is not possible here: ") + key->why);
    s.complain("is no key of DeepSpeed's configuration that is known here");
  }
}

DeepSpeedConfig::DeepSpeedConfig(const std::string& path) : path_(path) {
  DeepSpeedReader(*this, path).read();
}

void DeepSpeedConfig::complete(Options& o,
                               const std::function<bool(const std::string&)>& here) const {
  for (const char* flag : {"batch", "micro-batches"})
    if (here(flag) && !batch_place_.empty())
      fail(fmt::format("--{}: {} say it already", flag, batch_place_));
  if (!batch_place_.empty()) {
    try {
      const StepBatch batch = step_batch(batch_, std::max(1, o.train.data_ranks(o.ranks)));
      o.train.batch = batch.batch;
      o.train.micro_batches = batch.micro_batches;
    } catch (const Error& e) {
      fail(fmt::format("{}: {}", path_, e.what()));
    }
    o.given.insert({"batch", "micro-batches"});
  } else if (!here("batch")) {
    step_batch(batch_, 1);  // refuses
  }
  // Layers whose weights all fit into the buffer are on their way while one computes.
  if (prefetch_ && !here("prefetch")) {
    const double layers = static_cast<double>(*prefetch_) / o.train.model.block_weights_per_token();
    o.sharding.prefetch =
        static_cast<int>(std::min(layers, static_cast<double>(o.train.model.layers)));
    o.given.insert("prefetch");
  }
  if (bucket_ && !here("bucket-mb")) {
    o.data_parallel.bucket_mb = static_cast<double>(*bucket_) *
                                static_cast<double>(size_of(o.train.gradient_dtype)) / (1 << 20);
    o.given.insert("bucket-mb");
  }
}

std::string DeepSpeedConfig::origins(const std::string& error) const {
  std::string lines;
  for (const auto& [flag, place] : origins_) {
    const std::size_t at = error.find(flag);
    const std::size_t end = at + flag.size();
    if (at != std::string::npos &&
        (end == error.size() || std::string(" :,=.").find(error[end]) != std::string::npos))
      lines += fmt::format("{} comes from {}\n", flag, place);
  }
  return lines;
}

}  // namespace aisc
