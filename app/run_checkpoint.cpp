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

// A name in the file of what belongs to a rank.
std::string name_at(const Optimizer::State& state, int rank) {
  return fmt::format("{}@{}", state.name, rank);
}

std::vector<SafetensorsSpec> specs_of(const Optimizer& optimizer, int ranks) {
  std::vector<SafetensorsSpec> specs;
  for (const Optimizer::State& s : optimizer.state())
    specs.push_back({s.name, s.value.dtype(), s.value.shape()});
  for (int rank = 0; rank < ranks; ++rank)
    for (const Optimizer::State& s : optimizer.own_state())
      specs.push_back({name_at(s, rank), s.value.dtype(), s.value.shape()});
  return specs;
}

Tensor on_host(ConstView x, CpuDevice& host) {
  Tensor copy(x.shape(), x.dtype(), host);
  host.copy(copy, x);
  return copy;
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

std::string save_run(const Rank& rank, const std::string& checkpoints, const Trainer& trainer,
                     const Tokenizer* tokenizer, RunState state) {
  const std::vector<Optimizer::State> own = trainer.optimizer().own_state();
  CpuDevice host;
  if (rank.world.rank() > 0) {
    for (const Optimizer::State& s : own)
      rank.world.send(on_host(s.value, host), 0).wait();  // comm: what is this rank's own
    return "";
  }
  CheckpointWriter checkpoint(checkpoints, trainer.steps_taken());
  const std::int32_t end = tokenizer ? tokenizer->end_of_text().value_or(-1) : -1;
  write_gpt2_weights(checkpoint.folder(), trainer.config().model, trainer.parameters(), end);
  if (tokenizer) tokenizer->write(checkpoint.folder());
  SafetensorsWriter file(checkpoint.folder() + kState,
                         specs_of(trainer.optimizer(), rank.world.size()));
  const auto append = [&](ConstView x) {
    if (x.device().is_host())
      file.append(x);
    else
      file.append(on_host(x, host));
  };
  for (const Optimizer::State& s : trainer.optimizer().state()) append(s.value);
  for (const Optimizer::State& s : own) append(s.value);
  for (int from = 1; from < rank.world.size(); ++from)
    for (const Optimizer::State& s : own) {
      const Tensor theirs(s.value.shape(), s.value.dtype(), host);
      rank.world.recv(theirs, from).wait();  // comm: what is rank `from`'s own
      file.append(theirs);
    }
  file.commit();
  state.samples = trainer.samples_taken();
  return checkpoint.commit(state.to_json());
}

void restore_run(const Rank& rank, const Checkpoint& checkpoint, Trainer& trainer) {
  const RunState state = RunState::from_json(checkpoint.state, checkpoint.path);
  const Safetensors weights(checkpoint.path + kWeights);
  read_gpt2_weights(weights, trainer.config().model, trainer.parameters());
  const Safetensors file(checkpoint.path + kState);
  CpuDevice host;
  const auto read = [&](const std::string& name, View to) {
    const Tensor copy(to.shape(), to.dtype(), host);
    file.read(name, copy);
    to.device().copy(to, copy);
  };
  for (const Optimizer::State& s : trainer.optimizer().state()) read(s.name, s.value);
  for (const Optimizer::State& s : trainer.optimizer().own_state())
    read(name_at(s, rank.world.rank()), s.value);
  trainer.resume(checkpoint.step, state.samples);
}

}  // namespace aisc
