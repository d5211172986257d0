// Three published models with experts on their devices, and on more and fewer: bytes of a device,
// and how much of a step the way to the experts and back takes. Seconds are a machine profile's,
// bytes a device's without memory (docs/virtual_time.md).
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "08_moe/more/paper_models.h"
#include "common/core/flags/program.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

Machine machine_of_all() {
  Machine machine = find_machine("dgx-h100");
  machine.nodes = 2048;
  machine.launch_seconds = 0;
  return machine;
}

void print_assumptions() {
  fmt::print(
      R"(Assumed, the same for all rows. The machine is dgx-h100 (./aisc machines dgx-h100) with as many
nodes as it takes; Switch and GShard ran on TPU v3, DeepSeek-V3 on H800, whose links inside a node are
slower and whose cards are as fast. To begin an operation takes no time: experts' rows are put in order
here by a copy for each expert and rank, on a GPU by one. BF16, gradients too, AdamW with F32 copies,
nothing sharded or recomputed. Routing is even: each device sends each expert as many rows. All rows
that are routed are sent, no padding up to the capacity. Nothing runs beside an all-to-all but a shared
expert and the router's backward. Gradients are summed behind the backward pass: not in the step.

What our GPT does not have. Switch-Base: relative positions, an encoder (its 12 layers are 12 more of
the decoder), GEGLU (a hidden layer of 3072 in place of 2048 has as many weights). GShard: heads of 128
columns (64 here), an encoder. DeepSeek-V3, from the paper: 61 layers, the first 3 without experts, 7168
columns, 128 heads, 256 experts and a shared one, 8 a token, 129,280 words, 16 stages, experts on 64
ranks, 15,360 samples of 4096; not as there: latent attention (here 4 C^2 weights, a tenth more), SwiGLU
(two matrices with 3072 hidden columns weigh what its three with 2048 do, 27,648 stand for 18,432 in
dense layers), a second table for the head, FP8, a limit of 4 nodes a token, a second token predicted.
Experts choose tokens, 8 times an even share: as many rows as 8 experts a token.

)");
}

Json parameter_rows() {
  std::vector<PaperModel> models{paper_models()[0]};
  for (const auto& [experts, layers, billions] : {std::tuple{128, 12, 12.5},
                                                  {128, 36, 37.0},
                                                  {512, 12, 50.0},
                                                  {512, 36, 150.0},
                                                  {2048, 12, 200.0},
                                                  {2048, 36, 600.0}})
    models.push_back(gshard(experts, layers, billions));
  models.push_back(paper_models()[2]);
  Json rows = Json::array();
  for (const PaperModel& model : models) {
    const ParameterCounts counts = parameters_of(model);
    rows.push_back({{"model", model.name},
                    {"layers", model.config.layers},
                    {"experts", model.config.experts.count},
                    {"p. billions", model.billions},
                    {"billions", counts.all / 1e9},
                    {"over %", 100 * (counts.all / 1e9 / model.billions - 1)},
                    {"p. of a token", model.active_billions},
                    {"of a token", counts.of_a_token / 1e9}});
  }
  fmt::print("Parameters; \"p.\" is published, 0 where it is not.\n\n");
  print_table(rows);
  return rows;
}

DeviceStep step_of(const PaperModel& model, int devices, std::int64_t batch,
                   AllToAll kind = AllToAll::AtOnce) {
  return run_device(model, machine_of_all(), kind, devices, batch);
}

Json as_published() {
  Json rows = Json::array();
  for (const PaperModel& model : paper_models()) {
    const DeviceStep step = step_of(model, model.devices, model.batch);
    const DeviceStep pairwise = step_of(model, model.devices, model.batch, AllToAll::Pairwise);
    rows.push_back({{"model", model.name},
                    {"devices", step.devices},
                    {"ep", step.expert_ranks},
                    {"tokens", step.samples * model.config.context},
                    {"of", step.micro_batches},
                    {"weights", step.parameter_bytes / 1e9},
                    {"gradients", step.gradient_bytes / 1e9},
                    {"AdamW", step.optimizer_bytes / 1e9},
                    {"activations", step.activation_bytes / 1e9},
                    {"ms", 1e3 * step.micro_batch_seconds},
                    {"all-to-all", 1e3 * step.waiting_seconds},
                    {"update", 1e3 * step.update_seconds},
                    {"share %", 100 * step.share()},
                    {"pairwise %", 100 * pairwise.share()},
                    {"sum", 1e3 * step.sum_seconds}});
  }
  fmt::print(
      R"(A device of a stage, on as many devices as published: GB; tokens of a micro-batch, of which so many
make a step; ms of one, forward and backward, of its all-to-alls (what nothing hides), of the update, of
the sum of gradients. A pipeline of 16 stages keeps up to 16 times the activations. The share of a step
that is all-to-all: all messages at once, and one partner after another (the course's default).

)");
  print_table(rows);
  return rows;
}

Json more_devices() {
  Json all = Json::array();
  for (const PaperModel& model : paper_models()) {
    std::vector<DeviceStep> weak, pairwise, fixed;
    Json rows = Json::array();
    const std::int64_t each = model.batch * model.stages / model.devices;  // samples of a rank
    const int most = std::min(2048, 2 * model.most_expert_ranks);
    for (int ranks = 8; ranks <= most; ranks *= 2) {
      const int devices = ranks * model.stages;
      weak.push_back(step_of(model, devices, each * ranks));
      pairwise.push_back(step_of(model, devices, each * ranks, AllToAll::Pairwise));
      const DeviceStep& step = weak.back();
      Json row{{"devices", devices},
               {"ep", step.expert_ranks},
               {"GB", step.state_bytes() / 1e9},
               {"step ms", 1e3 * step.step_seconds()},
               {"share %", 100 * step.share()},
               {"pairwise %", 100 * pairwise.back().share()}};
      if (model.batch >= ranks) {
        fixed.push_back(step_of(model, devices, model.batch));
        row["batch: ms"] = 1e3 * fixed.back().step_seconds();
        row["batch: share %"] = 100 * fixed.back().share();
      } else {
        row["batch: ms"] = row["batch: share %"] = 0;
      }
      rows.push_back(row);
    }
    fmt::print(
        "{} on 8 ranks a stage and more: as many tokens on each device as published, GB of its "
        "state;\nand the batch as published, less on each the more devices there are (0: less "
        "than a sample).\n\n",
        model.name);
    print_table(rows);
    const auto at = [](int devices) {
      return devices == 0 ? std::string("none of these") : fmt::format("{} devices", devices);
    };
    fmt::print("All-to-all is half of a step at: {}; pairwise: {}; with the batch fixed: {}.\n\n",
               at(half_at(weak)), at(half_at(pairwise)), at(half_at(fixed)));
    all.push_back({{"model", model.name},
                   {"half_at", half_at(weak)},
                   {"half_at_pairwise", half_at(pairwise)},
                   {"half_at_fixed_batch", half_at(fixed)},
                   {"rows", rows}});
  }
  return all;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::measuring_program(
      argc, argv, "What published models with experts take on a device, and what their way costs.",
      [](aisc::CommandLine&) {},
      [] {
        aisc::print_assumptions();
        return nlohmann::ordered_json{{"parameters", aisc::parameter_rows()},
                                      {"published", aisc::as_published()},
                                      {"devices", aisc::more_devices()}};
      });
}
