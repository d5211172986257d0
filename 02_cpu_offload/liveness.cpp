// What freeing a tensor behind its last use is worth, of steps of a GPT without numbers.
#include "02_cpu_offload/more/liveness.h"

#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/launch.h"
#include "common/core/error.h"
#include "common/core/flags/program.h"
#include "common/nn/driver.h"
#include "common/nn/gpt.h"
#include "common/nn/parameter_store.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;
using Step = std::function<void(const Model&, const Tensor& tokens, const Tensor& targets)>;

constexpr std::int64_t kSamples = 8;
const GptConfig kConfig{.layers = 8, .heads = 16, .width = 2048, .dtype = DType::BF16};

// The step as it is recorded, and the ledger's peak.
Json recorded(std::int64_t recompute_blocks, const Step& step) {
  Json row;
  launch({.ranks = 1}, [&](const Rank& rank) {
    RecordingDevice device(DeviceKind::Meta);
    GptParts parts = gpt2_parts();
    parts.recompute_blocks = recompute_blocks;
    const Model model = make_gpt({rank.world, device, rank.clock, rank.trace}, kConfig, parts);
    ParameterStore store(device, make_units(model),
                         {.value_dtype = DType::BF16, .grad_dtype = DType::BF16});
    const Shape ids{kSamples, kConfig.context};
    const Tensor tokens(ids, DType::I32, device), targets(ids, DType::I32, device);
    device.begin_step();
    step(model, tokens, targets);
    const std::int64_t ledger = device.ledger().total.peak_bytes;
    const StepTrace trace = device.end_step();
    std::vector<std::string> names;
    for (const StepTrace::Operation& operation : trace.operations) names.push_back(operation.name);
    row = {{"operations", names},
           {"tensors", trace.tensor_bytes.size()},
           {"resident", trace.resident_bytes},
           {"kept", live_bytes(trace, Freeing::AtEnd)},
           {"freed", live_bytes(trace, Freeing::AtLastUse)},
           {"kept_peak", step_peak_bytes(trace, Freeing::AtEnd)},
           {"freed_peak", step_peak_bytes(trace, Freeing::AtLastUse)},
           {"ledger_peak", ledger}};
  });
  return row;
}

Json liveness() {
  fmt::print(
      "A GPT of {} blocks of {} columns, {} samples of {} tokens, BF16, without numbers. GB beside "
      "the {:.3f}\nof weights, gradients and tokens: every tensor kept to the end, and freed "
      "behind "
      "its last use\n\n",
      kConfig.layers, kConfig.width, kSamples, kConfig.context,
      recorded(0, [](auto&&...) {})["resident"].get<double>() / 1e9);
  const Step forward_alone = [](const Model& model, const Tensor& tokens, const Tensor&) {
    forward(model, tokens);
  };
  const Step training = [](const Model& model, const Tensor& tokens, const Tensor& targets) {
    forward_backward(model, tokens, targets, {}, 1);
  };
  Json json, rows = Json::array();
  const auto add = [&](const char* name, std::int64_t recompute_blocks, const Step& step) {
    const Json& of = json[name] = recorded(recompute_blocks, step);
    const auto gb = [&](const char* key) {
      return (of[key].get<double>() - of["resident"].get<double>()) / 1e9;
    };
    rows.push_back({{"step", name},
                    {"operations", of["operations"].size()},
                    {"tensors", of["tensors"]},
                    {"kept", gb("kept_peak")},
                    {"freed", gb("freed_peak")},
                    {"ledger", gb("ledger_peak")},
                    {"ratio", gb("kept_peak") / gb("freed_peak")}});
  };
  add("forward", 0, forward_alone);
  add("forward and backward", 0, training);
  add("blocks recomputed", 1, training);
  print_table(rows);
  return json;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::measuring_program(
      argc, argv, "What freeing a tensor behind its last use is worth.", [](aisc::CommandLine&) {},
      aisc::liveness);
}
