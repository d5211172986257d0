// A table of layouts for the page that compares them (`./aisc play`): two GPTs on two machines,
// each mesh, stage of ZeRO and recomputation run for a step in virtual time (docs/virtual_time.md):
//
//   {"machines": [{"name": "dgx-a100", "says": "8 A100 ...", "ranks": 8, "capacity": 80e9}],
//    "models": [{"name": "gpt-1.3b", "says": "...", "flags": "--layers 24 ..."}],
//    "rows": [{"dp": 4, "tp": 2, "pp": 1, "cp": 1, "ep": 1, "model": "gpt-1.3b",
//              "machine": "dgx-a100", "zero": 1, "recompute": "none",
//              "bytes": {"parameters": 1315962880, ...}, "total": 7e9, "most": 7e9, "fits": true,
//              "sent": 8554730000, "seconds": 0.47, "parts": {"product": 0.3, ...},
//              "exposed": 0.02, "under_way": 0.1, "tokens_per_second": 1e5, "utilisation": 0.4}]}
//
// Bytes, parts and what is sent are rank 0's, as `./aisc train --machine` prints them: "bytes" most
// of each purpose, "total" of all at once; "most" is of the rank that has most. A row with
// "problem" says why layouts are not run, in the words of the run: all that agree with what stands
// in it.
#include <atomic>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "05_pipeline/pipelined.h"
#include "11_gpt_3d/step_of.h"
#include "app/emulated_run.h"
#include "app/flag_rules.h"
#include "common/core/error.h"
#include "common/core/flags/program.h"
#include "common/core/system/machine.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;
constexpr int kRanks = 8;  // in each direction 1, 2, 4 or 8

struct Model {
  int experts;
  std::string name, says;
};

const std::vector<Model> kModels{
    {0, "gpt-1.3b", "1.3 billion parameters, 24 blocks of width 2048"},
    {16, "gpt-1.3b-16-experts",
     "7.3 billion parameters, 16 experts in every other block, of which a token meets one"}};

// Of `./aisc train`, for what options_of() has besides the layout.
constexpr const char* kFlags =
    "--layers 24 --heads 16 --width 2048 --context 1024 --vocabulary 50257 --precision bf16 "
    "--batch 64 --micro-batches 8";

Options options_of(const Model& model, const MeshShape& mesh) {
  Options o;
  o.ranks = kRanks;
  o.train.model = {.layers = 24,
                   .heads = 16,
                   .width = 2048,
                   .context = 1024,
                   .vocabulary = 50257,
                   .dtype = DType::BF16};
  o.train.model.experts.count = model.experts;
  o.train.gradient_dtype = DType::BF16;
  o.train.batch = 64;
  o.train.micro_batches = 8;
  o.train.pp = mesh.pp;
  o.train.tp = mesh.tp;
  o.train.cp = mesh.cp;
  o.train.ep = mesh.ep;
  return o;
}

// What a row has of a layout that is run, for one step: a further one is the same.
Json measured(const Options& options, const Machine& machine) {
  Machine roomy = machine;
  roomy.capacity = 0;  // what does not fit is in the table, too
  const GptConfig& model = options.train.model;
  const std::vector<std::uint8_t> zeros(static_cast<std::size_t>(model.context + 1));
  const EmulatedStep step = emulate({.config = options.train,
                                     .machine = roomy,
                                     .ranks = kRanks,
                                     .meta = true,
                                     .steps = 1,
                                     .parts = step_of(options)},
                                    zeros);
  Json bytes, parts;
  for (int p = 0; p < kPurposeCount; ++p)
    bytes[name_of(Purpose{p})] = step.ledger[Purpose{p}].peak_bytes;
  for (const auto& [part, seconds] : step.seconds_by_part)
    if (seconds > 1e-12) parts[part] = seconds;  // else rounding of spans that only hold others
  const double tokens = static_cast<double>(options.train.batch * model.context) / step.seconds;
  return {{"bytes", bytes},
          {"total", step.ledger.total.peak_bytes},
          {"most", step.most_bytes},
          {"fits", static_cast<double>(step.most_bytes) <= machine.capacity},
          {"sent", step.sent_bytes},
          {"seconds", step.seconds},
          {"parts", parts},
          {"exposed", step.exposed_seconds},
          {"under_way", step.communication_seconds},
          {"tokens_per_second", tokens},
          {"utilisation",
           model.flops_per_token(model.context) * tokens / (machine.peak(model.dtype) * kRanks)}};
}

// With what `fill` writes into it, or with why it cannot.
template <typename Fill>
Json filled(Json row, Fill fill) {
  try {
    fill(row);
  } catch (const Error& e) {
    row["problem"] = e.what();
  }
  return row;
}

Json row_of(const MeshShape& mesh) {
  return {{"dp", mesh.dp}, {"tp", mesh.tp}, {"pp", mesh.pp}, {"cp", mesh.cp}};
}

// Rows of a mesh: for each stage of ZeRO and recomputation, or one for all that cannot be.
Json rows_of(const Model& model, const Machine& machine, const MeshShape& mesh) {
  Options options = options_of(model, mesh);
  options.machine = machine.name;  // by its figures stages are cut
  Json row = row_of(mesh);
  row.update({{"ep", mesh.ep}, {"model", model.name}, {"machine", machine.name}});
  row = filled(row, [&](Json&) {
    options.train.validate(kRanks);
    if (mesh.pp > 1) stages_of(options.train.model, mesh.pp, machine.name);
    if (model.experts > 0 && mesh.cp > 1)
      fail("so that it is short, this table has no context parallelism with experts");
  });
  if (row.contains("problem")) return Json::array({row});
  Json rows;
  for (int zero = 0; zero <= 3; ++zero)
    for (const char* recompute : {"none", "block"})
      rows.push_back(filled(row, [&](Json& r) {
        r.update({{"zero", zero}, {"recompute", recompute}});
        if (zero > 0 && mesh.dp * mesh.cp == 1)
          fail("dp and cp are 1: no other rank has the same weights, to divide anything with");
        options.sharding.zero = zero;
        options.train.recompute = Recompute::parse(recompute);
        require_parallel(options, [](const std::string&) { return false; });
        r.update(measured(options, machine));
      }));
  return rows;
}

Json run(const std::vector<std::string>& machines) {
  struct Job {
    Model model;
    Machine machine;
    MeshShape mesh;
    Json rows = {};
  };
  std::vector<Job> jobs;
  Json described = Json::array(), models = Json::array(), rows = Json::array();
  for (const auto& [experts, name, says] : kModels) {
    const std::string more = experts > 0 ? " --experts " + std::to_string(experts) : "";
    models.push_back({{"name", name}, {"says", says}, {"flags", kFlags + more}});
  }
  std::vector<MeshShape> meshes;
  for (int i = 0; i < 256; ++i) {  // two bits a direction
    const MeshShape mesh{
        .dp = 1 << i / 64, .pp = 1 << i / 4 % 4, .cp = 1 << i % 4, .tp = 1 << i / 16 % 4};
    const Json row = filled(row_of(mesh), [&](Json&) { check_mesh(mesh, kRanks); });
    if (!row.contains("problem")) meshes.push_back(mesh);
    if (row.contains("problem")) rows.push_back(row);
  }
  for (const std::string& name : machines) {
    const Machine machine = find_machine(name);
    described.push_back({{"name", machine.name},
                         {"says", machine.says},
                         {"ranks", kRanks},
                         {"capacity", machine.capacity}});
    for (const Model& model : kModels)
      for (MeshShape mesh : meshes)
        for (mesh.ep = 1; mesh.ep <= kRanks; mesh.ep *= 2) jobs.push_back({model, machine, mesh});
  }
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < jobs.size(); i = next++)
      jobs[i].rows = rows_of(jobs[i].model, jobs[i].machine, jobs[i].mesh);
  };
  std::vector<std::jthread> workers;
  for (int i = 0; i < available_cores(); ++i) workers.emplace_back(work);
  workers.clear();  // joins
  for (const Job& job : jobs) rows.insert(rows.end(), job.rows.begin(), job.rows.end());
  return {{"machines", described}, {"models", models}, {"rows", rows}};
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  std::vector<std::string> machines{"dgx-a100", "dgx-h100"};
  return aisc::measuring_program(
      argc, argv, "The table of layouts that a page of `./aisc play` shows.",
      [&](aisc::CommandLine& line) { line.texts("--machine", machines, "`./aisc machines` has"); },
      [&] { return aisc::run(machines); });
}
