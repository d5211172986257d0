// ZeRO and offload.
#include <string>
#include <utility>

#include "app/deepspeed_reader.h"

namespace aisc {

void DeepSpeedReader::zero() {
  const std::string zero = "zero_optimization";
  const auto stage = file_.take(zero + ".stage");
  const std::int64_t number = stage ? stage->whole(0) : 0;
  if (number > 3) stage->refuse("0, 1, 2 or 3");
  const bool weights_away = offload(number);
  if (stage && !weights_away) flag("zero", std::to_string(number), *stage);
  shard_groups(number, weights_away);
  // Of stage 3 alone.
  for (const auto& [key, name] : {std::pair("stage3_max_live_parameters", "live"),
                                  std::pair("stage3_max_reuse_distance", "reuse"),
                                  std::pair("stage3_param_persistence_threshold", "persist"),
                                  std::pair("stage3_prefetch_bucket_size", "")}) {
    const auto s = file_.take(zero + "." + key);
    if (!s) continue;
    const std::int64_t elements = s->whole(0);
    if (number != 3) {
      remark(*s, fmt::format("the stage is {}", number));
    } else if (weights_away) {
      remark(*s, "weights come from the host unit by unit");
    } else if (*name) {
      flag(name, std::to_string(elements), *s);
    } else {
      config_.prefetch_ = elements;
      config_.origins_["--prefetch"] = s->place();
    }
  }
  if (const auto s = file_.take(zero + ".reduce_bucket_size")) {
    const std::int64_t elements = s->whole(1);
    if (number > 0 || weights_away) {
      remark(*s, "with ZeRO gradients are summed unit by unit, which are no larger than a layer");
    } else {
      config_.bucket_ = elements;
      config_.origins_["--bucket-mb"] = s->place();
    }
  }
  if (const auto s = file_.take(zero + ".overlap_comm")) {
    if (number == 0 && !weights_away)
      flag("overlap", s->on() ? "on" : "off", *s);
    else if (!s->on())
      s->complain("found false: with ZeRO shards are always sent while layers compute");
    else
      remark(*s, "with ZeRO shards are always sent while layers compute");
  }
}

// MiCS: of stage 3 alone, as DeepSpeed has it; -1 and 0 are none.
void DeepSpeedReader::shard_groups(std::int64_t stage, bool weights_away) {
  const auto s = file_.take("zero_optimization.mics_shard_size");
  if (!s) return;
  const std::int64_t ranks = s->value == -1 ? 0 : s->whole(0);
  if (ranks == 0)
    remark(*s, "shards lie on all data-parallel ranks");
  else if (stage != 3)
    remark(*s, fmt::format("the stage is {}", stage));
  else if (weights_away)
    s->complain("weights leave to the hosts of all ranks, which divide them");
  else
    flag("zero-group", std::to_string(ranks), *s);
}

// Where state, or all, lies. True: weights lie on the host, which the ranks divide already.
bool DeepSpeedReader::offload(std::int64_t stage) {
  std::string tier;
  const auto device_of = [&](const std::string& block) {
    const std::string key = "zero_optimization." + block;
    const auto device = file_.take(key + ".device");
    const auto path = file_.take(key + ".nvme_path");
    const std::string word = device ? device->one_of({"none", "cpu", "nvme"}) : "none";
    if (word == "nvme") {
      if (!path) device->complain("found \"nvme\": expected nvme_path beside it");
      if (!tier.empty() && tier != path->text()) path->refuse("one folder for both: " + tier);
      tier = path->text();
    } else if (path) {
      remark(*path, "the device is no disk");
    }
    return std::pair(word == "none" ? std::nullopt : device, path);
  };
  const auto [optimizer, optimizer_path] = device_of("offload_optimizer");
  const auto [weights, weights_path] = device_of("offload_param");
  if (const auto s = file_.take("zero_optimization.offload_optimizer.ratio"); s && s->real(0) != 1)
    s->refuse("1: the host updates all or nothing");
  if (optimizer && stage == 0) optimizer->complain("the stage is 0: expected 1, 2 or 3");
  if (weights && stage != 3) weights->complain(fmt::format("the stage is {}: expected 3", stage));
  if (weights && (!optimizer || optimizer->value != weights->value))
    weights->complain(
        "weights leave with gradients and optimizer: expected offload_optimizer "
        "with the same device");
  if (!optimizer) return false;
  flag("offload", weights ? "weights" : "optimizer", weights ? *weights : *optimizer);
  if (!tier.empty()) flag("tier", "disk:" + tier, *optimizer_path);
  return weights.has_value();
}

}  // namespace aisc
