#include "app/run_checkpoint.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>

#include "app/agreement.h"
#include "app/recorded_flags.h"
#include "app/saved_state.h"
#include "app/saved_weights.h"
#include "common/comm/host_values.h"
#include "common/core/error.h"
#include "common/ops/ops.h"
#include "formats/json_file.h"

namespace aisc {
namespace {

constexpr const char* kWeights = "/model.safetensors";
constexpr const char* kState = "/training_state.safetensors";

// One pass over what this rank updates. A run that has diverged may still have a finite loss: of
// the step before.
void require_finite(const Trainer& trainer) {
  const auto require = [&](const std::string& name, ConstView value) {
    if (!std::isfinite(ops::sum_of_squares(value)))
      fail(
          fmt::format("after step {} \"{}\" has numbers that are not finite: the run has diverged, "
                      "and no checkpoint of it is written",
                      trainer.steps_taken(), name));
  };
  const Optimizer& optimizer = trainer.optimizer();
  for (const OptimizerSlice& slice : optimizer.slices()) require(slice.name, slice.weight);
  for (const auto& states : {optimizer.state(), optimizer.own_state()})
    for (const Optimizer::State& state : states) require(state.name, state.value);
}

}  // namespace

std::string RunState::to_json() const {
  nlohmann::json json{{"config", nlohmann::json::parse(config)},
                      {"command", command},
                      {"corpus_hash", fmt::format("{:016x}", corpus_hash)},
                      {"samples", samples}};
  if (updates) json["updates"] = *updates;
  if (!loss_scale.empty()) json["loss_scale"] = loss_scale;
  return json.dump();
}

RunState RunState::from_json(const std::string& json, const std::string& name) {
  const nlohmann::json j = parse_json(json, name);
  const auto has = [&](const char* key, auto is) { return j.contains(key) && (j[key].*is)(); };
  if (!j.is_object() || !has("config", &nlohmann::json::is_object) ||
      !has("command", &nlohmann::json::is_string) ||
      !has("corpus_hash", &nlohmann::json::is_string) ||
      !has("samples", &nlohmann::json::is_number_unsigned))
    fail(name +
         ": not a checkpoint of a training run: expected \"config\", \"command\", \"corpus_hash\" "
         "and "
         "\"samples\"");
  RunState state;
  state.config = j["config"].dump();
  state.command = j["command"].get<std::string>();
  state.samples = j["samples"].get<std::int64_t>();
  if (j.contains("updates")) {
    if (!has("updates", &nlohmann::json::is_number_unsigned))
      fail(name + ": \"updates\": found " + shown(j["updates"]) + ", expected a number");
    state.updates = j["updates"].get<std::int64_t>();
  }
  if (j.contains("loss_scale")) {
    for (const nlohmann::json& value : j["loss_scale"]) {
      if (!j["loss_scale"].is_array() || !value.is_number())
        fail(name + ": \"loss_scale\": found " + shown(j["loss_scale"]) +
             ", expected a list of numbers");
      state.loss_scale.push_back(value.get<double>());
    }
  }
  const auto hash = j["corpus_hash"].get<std::string>();
  std::from_chars(hash.data(), hash.data() + hash.size(), state.corpus_hash, 16);
  return state;
}

std::string updates_remark(const RunState& before, const std::string& schedule) {
  constexpr const char* kSeveral = "pipedream";
  if (before.updates || (schedule != kSeveral && recorded_value(before.config, "schedule") !=
                                                     fmt::format("\"{}\"", kSeveral)))
    return "";
  return "the checkpoint does not say how many updates there were, by which Adam corrects its "
         "bias; "
         "each step is taken to have had as many as it has now";
}

std::string save_run(const Rank& rank, const std::string& checkpoints, const Trainer& trainer,
                     RunState state, const WeightsFormat& format,
                     const WriteVocabulary& vocabulary) {
  Communicator& world = rank.world;
  const bool is_first = world.rank() == 0;
  on_all_ranks(world, [&] { require_finite(trainer); });
  std::optional<CheckpointWriter> checkpoint;  // rank 0's; dropped, it leaves nothing
  on_all_ranks(world, [&] {
    if (is_first) checkpoint.emplace(checkpoints, trainer.steps_taken());
  });
  const std::string folder =
      broadcast_text(world, is_first ? checkpoint->folder() : "", 0);  // comm: where to write
  CpuDevice host;
  write_weights(rank, folder, trainer, host, format);
  write_state(rank, folder + kState, trainer, host);
  std::string path;
  on_all_ranks(world, [&] {
    if (!is_first) return;
    if (vocabulary) vocabulary(folder);
    state.samples = trainer.samples_taken();
    state.updates = trainer.optimizer().steps();
    if (trainer.scale()) state.loss_scale = trainer.scale()->state();
    path = checkpoint->commit(state.to_json());
  });
  return path;
}

void restore_run(const Rank& rank, const Checkpoint& checkpoint, Trainer& trainer,
                 const WeightsFormat& format) {
  RunState state;
  on_all_ranks(rank.world, [&] {
    state = RunState::from_json(checkpoint.state, checkpoint.path);
    CpuDevice host;
    read_weights(Safetensors(checkpoint.path + kWeights), trainer, host, format);
    read_state(rank, Safetensors(checkpoint.path + kState), trainer, host);
    if (trainer.scale() && !state.loss_scale.empty()) trainer.scale()->restore(state.loss_scale);
  });
  trainer.resume(checkpoint.step, state.samples, state.updates);
}

void begin_from(const Rank& rank, const std::string& weights, Trainer& trainer,
                const WeightsFormat& format) {
  on_all_ranks(rank.world, [&] {
    CpuDevice host;
    read_weights(Safetensors(weights), trainer, host, format);
  });
  trainer.resume(0, 0);
}

}  // namespace aisc
