#include "app/run_checkpoint.h"

#include <fmt/format.h>

#include <charconv>

#include "common/core/error.h"
#include "formats/gpt2_weights.h"
#include "formats/json_file.h"

namespace aisc {
namespace {

constexpr const char* kWeights = "/model.safetensors";
constexpr const char* kState = "/training_state.safetensors";

std::vector<SafetensorsSpec> specs_of(const std::vector<Optimizer::State>& state) {
  std::vector<SafetensorsSpec> specs;
  for (const Optimizer::State& s : state)
    specs.push_back({s.name, s.value.dtype(), s.value.shape()});
  return specs;
}

}  // namespace

std::string RunState::to_json() const {
  const nlohmann::json json{{"config", nlohmann::json::parse(config)},
                            {"command", command},
                            {"corpus_hash", fmt::format("{:016x}", corpus_hash)},
                            {"samples", samples}};
  return json.dump();
}

RunState RunState::from_json(const std::string& json, const std::string& name) {
  const nlohmann::json j = parse_json(json, name);
  const auto has = [&](const char* key, auto is) { return j.contains(key) && (j[key].*is)(); };
  using Json = nlohmann::json;
  if (!j.is_object() || !has("config", &Json::is_object) || !has("command", &Json::is_string) ||
      !has("corpus_hash", &Json::is_string) || !has("samples", &Json::is_number_unsigned))
    fail(name +
         ": not a checkpoint of a training run: expected \"config\", \"command\", \"corpus_hash\" "
         "and "
         "\"samples\"");
  RunState state;
  state.config = j["config"].dump();
  state.command = j["command"].get<std::string>();
  state.samples = j["samples"].get<std::int64_t>();
  const auto hash = j["corpus_hash"].get<std::string>();
  std::from_chars(hash.data(), hash.data() + hash.size(), state.corpus_hash, 16);
  return state;
}

std::string save_run(const std::string& checkpoints, const Trainer& trainer,
                     const Tokenizer* tokenizer, RunState state) {
  CheckpointWriter checkpoint(checkpoints, trainer.steps_taken());
  const std::int32_t end = tokenizer ? tokenizer->end_of_text().value_or(-1) : -1;
  write_gpt2_weights(checkpoint.folder(), trainer.config().model, trainer.parameters(), end);
  if (tokenizer) tokenizer->write(checkpoint.folder());
  const std::vector<Optimizer::State> tensors = trainer.optimizer().state();
  SafetensorsWriter file(checkpoint.folder() + kState, specs_of(tensors));
  CpuDevice host;
  for (const Optimizer::State& s : tensors) {
    if (s.value.device().is_host()) {
      file.append(s.value);
    } else {
      Tensor copy(s.value.shape(), s.value.dtype(), host);
      host.copy(copy, s.value);
      file.append(copy);
    }
  }
  file.commit();
  state.samples = trainer.samples_taken();
  return checkpoint.commit(state.to_json());
}

void restore_run(const Checkpoint& checkpoint, Trainer& trainer) {
  const RunState state = RunState::from_json(checkpoint.state, checkpoint.path);
  const Safetensors weights(checkpoint.path + kWeights);
  read_gpt2_weights(weights, trainer.config().model, trainer.parameters());
  const Safetensors file(checkpoint.path + kState);
  CpuDevice host;
  for (const Optimizer::State& s : trainer.optimizer().state()) {
    Tensor copy(s.value.shape(), s.value.dtype(), host);
    file.read(s.name, copy);
    s.value.device().copy(s.value, copy);
  }
  trainer.resume(checkpoint.step, state.samples);
}

}  // namespace aisc
