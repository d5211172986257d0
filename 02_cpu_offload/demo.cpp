// What lies on the device during a step, turn by turn, in virtual time (docs/virtual_time.md): a
// GPT that is there as a whole, and one whose layers come and go.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "02_cpu_offload/host_weights.h"
#include "02_cpu_offload/saved_to_host.h"
#include "common/core/flags/program.h"
#include "common/model/emulated_device.h"
#include "common/train/trainer.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

// The device's books when each turn is over.
class Residency final : public LayerHook {
 public:
  Residency(const Rank& rank, Json& turns) : rank_(rank), turns_(turns) {}

  void after_forward(std::size_t layer, const Pass& pass, Saved& /*saved*/) override {
    if (pass.training) note("forward", layer);
  }
  void after_backward(std::size_t layer, const Pass& /*pass*/) override { note("backward", layer); }

 private:
  void note(const char* direction, std::size_t layer) {
    const Ledger ledger = rank_.device.ledger();
    Json turn{{"direction", direction}, {"layer", layer}, {"seconds", rank_.clock.now()}};
    for (const Purpose p :
         {Purpose::Parameters, Purpose::Gradients, Purpose::Optimizer, Purpose::Activations})
      turn[name_of(p)] = ledger[p].live_bytes;
    turns_.push_back(std::move(turn));
  }

  const Rank rank_;
  Json& turns_;
};

TrainConfig blocks_of_2048() {
  TrainConfig config;
  config.model = {.layers = 8,
                  .heads = 16,
                  .width = 2048,
                  .context = 1024,
                  .vocabulary = 50257,
                  .dtype = DType::BF16};
  config.gradient_dtype = DType::BF16;
  config.batch = 8;
  config.clip = 1;
  return config;
}

// The second step of a run: turns, its seconds, and what was there at most and in all.
Json step_of(const Machine& machine, StepParts parts) {
  const std::vector<std::uint8_t> zeros(2048);
  Json result, turns = Json::array();
  launch(on_machine(machine, 1, {.meta = true}), [&](const Rank& rank) {
    parts.hooks.push_back([&](const Rank& its, const Model& /*model*/, Mesh* /*mesh*/) {
      return std::make_unique<Residency>(its, turns);
    });
    Trainer trainer(rank, blocks_of_2048(), parts);
    const BatchSampler data(zeros, trainer.config().model.context, 1);
    trainer.step(data);
    turns.clear();
    rank.device.reset_peaks();
    const double begin = rank.clock.now();
    trainer.step(data);
    for (Json& turn : turns) turn["seconds"] = turn["seconds"].get<double>() - begin;
    result["seconds"] = rank.clock.now() - begin;
    result["peak"] = rank.device.ledger().total.peak_bytes;
  });
  result["turns"] = turns;
  return result;
}

Json residency() {
  Machine machine = find_machine("dgx-2");
  machine.capacity = 0;  // what does not fit is in the table, too
  const std::pair<const char*, StepParts> forms[] = {
      {"none", {}},
      {"weights", weights_on_host()},
      {"activations", activations_on_host({})},
      {"all", activations_on_host(weights_on_host())},
      {"all, no prefetch",
       activations_on_host(weights_on_host({}, {.prefetch = false}), {.prefetch = false})}};
  fmt::print(
      "8 blocks of 2,048 columns, 8 samples of 1,024 tokens, BF16, one V100: what is on the device "
      "behind a turn, at most, and a step\n\n{:<18}{:>10}{:>11}{:>11}{:>13}{:>9}{:>11}\n",
      "on the host", "weights", "gradients", "optimizer", "activations", "GB", "seconds");
  Json json;
  for (const auto& [name, parts] : forms) {
    const Json step = step_of(machine, parts);
    const auto most = [&](Purpose purpose) {
      std::int64_t bytes = 0;
      for (const Json& turn : step["turns"])
        bytes = std::max(bytes, turn[name_of(purpose)].get<std::int64_t>());
      return static_cast<double>(bytes) / 1e9;
    };
    fmt::print("{:<18}{:>10.3f}{:>11.3f}{:>11.3f}{:>13.3f}{:>9.3f}{:>11.4f}\n", name,
               most(Purpose::Parameters), most(Purpose::Gradients), most(Purpose::Optimizer),
               most(Purpose::Activations), step["peak"].get<double>() / 1e9,
               step["seconds"].get<double>());
    json[name] = step;
  }
  return json;
}

Json run() {
  Json json;
  json["residency"] = residency();
  return json;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::measuring_program(
      argc, argv, "A model larger than its device in numbers, in virtual time.",
      [](aisc::CommandLine&) {}, aisc::run);
}
