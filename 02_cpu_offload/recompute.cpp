// Memory for time: what a step of a GPT holds and takes where blocks, or parts of them, are
// recomputed, in virtual time (docs/virtual_time.md); and the three choices under a limit.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "02_cpu_offload/fit_savings.h"
#include "common/core/error.h"
#include "common/core/flags/program.h"
#include "common/model/emulated_device.h"
#include "common/train/trainer.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kBlocks = 16, kSamples = 8;

TrainConfig sixteen_blocks() {
  TrainConfig config;
  config.model = {.layers = kBlocks,
                  .heads = 16,
                  .width = 2048,
                  .context = 1024,
                  .vocabulary = 50257,
                  .dtype = DType::BF16};
  config.gradient_dtype = DType::BF16;
  config.batch = kSamples;
  return config;
}

struct Taken {
  double forward = 0, seconds = 0, product_flops = 0;
  std::int64_t activations = 0, all = 0;  // bytes at most
};

// When the last layer's forward is over.
class ForwardEnd final : public LayerHook {
 public:
  ForwardEnd(const Rank& rank, double& end) : rank_(rank), end_(end) {}
  void after_forward(std::size_t /*layer*/, const Pass& /*pass*/, Saved& /*saved*/) override {
    end_ = rank_.clock.now();
  }

 private:
  const Rank rank_;
  double& end_;
};

Taken taken(const Machine& machine, const TrainConfig& config, StepParts parts) {
  Taken result;
  const std::vector<std::uint8_t> zeros(static_cast<std::size_t>(config.model.context + 1));
  launch(on_machine(machine, 1, {.meta = true}), [&](const Rank& rank) {
    parts.hooks.push_back([&](const Rank& own, const Model& /*model*/, Mesh* /*mesh*/) {
      return std::make_unique<ForwardEnd>(own, result.forward);
    });
    Trainer trainer(rank, config, parts);
    rank.device.reset_peaks();
    rank.device.listen([&](const OpCost& c) { result.product_flops += c.product ? c.flops : 0; });
    const BatchSampler data(zeros, config.model.context, 1);
    const double begin = rank.clock.now();
    trainer.step(data);
    rank.device.listen(nullptr);
    result.forward -= begin;
    result.seconds = rank.clock.now() - begin;
    result.activations = rank.device.ledger()[Purpose::Activations].peak_bytes;
    result.all = rank.device.ledger().total.peak_bytes;
  });
  return result;
}

Json forms(const Machine& machine) {
  std::vector<std::string> names{"none", "core", "attention", "mlp"};
  for (int k = 1; k <= kBlocks; ++k) names.push_back(fmt::format("every:{}", k));
  fmt::print("{:<12}{:>16}{:>12}{:>12}{:>12}{:>10}{:>12}\n", "recomputed", "activations, GB",
             "forward, s", "a step, s", "longer, %", "FLOPs", "n/k + k");
  Json rows = Json::array();
  Taken none;
  for (const std::string& name : names) {
    TrainConfig config = sixteen_blocks();
    config.recompute = Recompute::parse(name);
    const Taken step = taken(machine, config, {});
    if (name == "none") none = step;
    const std::int64_t k = config.recompute.blocks;
    fmt::print("{:<12}{:>16.2f}{:>12.4f}{:>12.4f}{:>12.1f}{:>10.3f}{:>12}\n", name,
               static_cast<double>(step.activations) / 1e9, step.forward, step.seconds,
               100 * (step.seconds / none.seconds - 1), step.product_flops / none.product_flops,
               k == 0 ? "" : fmt::format("{:.1f}", static_cast<double>((kBlocks + k - 1) / k + k)));
    rows.push_back({{"recomputed", name},
                    {"activations", step.activations},
                    {"seconds", step.seconds},
                    {"forward", step.forward},
                    {"product_flops", step.product_flops}});
  }
  fmt::print("\nbackward of {:.2f} forwards, without the update\n\n",
             (none.seconds - none.forward) / none.forward);
  return rows;
}

// The quickest plan of each limit.
Json limits(const Machine& machine) {
  const TrainConfig config = sixteen_blocks();
  const MeasureStep measure = [&](const TrainConfig& own, const StepParts& parts) {
    const Taken step = taken(machine, own, parts);
    return StepMeasure{step.seconds, step.all};
  };
  const double all = static_cast<double>(taken(machine, config, {}).all);
  fmt::print("{:>12}{:>12}{:>8}{:>12}{:>12}{:>12}\n", "limit, GB", "there, GB", "kept",
             "recomputed", "offloaded", "a step, s");
  Json rows = Json::array();
  for (const double share : {1.0, .95, .9, .85, .8, .75, .7}) {
    const auto limit = static_cast<std::int64_t>(share * all);
    try {
      const FittedSavings fitted = fit_savings(config, {}, machine.host_link, limit, measure);
      const auto count = [&](Saving saving) {
        return std::count(fitted.layers.begin(), fitted.layers.end(), saving);
      };
      fmt::print("{:>12.2f}{:>12.2f}{:>8}{:>12}{:>12}{:>12.4f}\n", static_cast<double>(limit) / 1e9,
                 static_cast<double>(fitted.step.peak_bytes) / 1e9, count(Saving::Keep),
                 count(Saving::Recompute), count(Saving::Offload), fitted.step.seconds);
      rows.push_back({{"limit", limit},
                      {"peak", fitted.step.peak_bytes},
                      {"recomputed", count(Saving::Recompute)},
                      {"offloaded", count(Saving::Offload)},
                      {"seconds", fitted.step.seconds}});
    } catch (const Error& e) {
      fmt::print("{:>12.2f}  {}\n", static_cast<double>(limit) / 1e9, e.what());
    }
  }
  return rows;
}

Json run() {
  Machine machine = find_machine("dgx-2");
  machine.capacity = 0;
  fmt::print("{} blocks of 2,048 columns, {} samples of 1,024 tokens, BF16, one V100\n\n", kBlocks,
             kSamples);
  Json json;
  json["forms"] = forms(machine);
  json["limits"] = limits(machine);
  return json;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::measuring_program(
      argc, argv, "What is recomputed, and what that saves and costs.", [](aisc::CommandLine&) {},
      aisc::run);
}
