// Which mesh is the best for a GPT on a machine: every way to divide its ranks among data, stages
// and parts of layers, each run for one step in virtual time without numbers, those that fit beside
// each other from the fastest (docs/virtual_time.md). With --tp and --pp it is one mesh.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "11_gpt_3d/mesh_choices.h"
#include "11_gpt_3d/tuner.h"
#include "common/core/error.h"
#include "common/core/flags/program.h"
#include "common/model/stage_replicas.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

// The micro-batches that are tried, in samples; they have to divide a rank's share of the batch.
constexpr std::int64_t kMicroBatches[] = {1, 2, 4, 8};

struct Search {
  std::string machine = "selene";
  int ranks = 384;
  std::int64_t batch = 1536;
  GptConfig model{.layers = 96,
                  .heads = 96,
                  .width = 12288,
                  .context = 2048,
                  .vocabulary = 51200,
                  .dropout = 0.1,
                  .dtype = DType::BF16};
  int tp = 0, pp = 0;  // 0: all
  int micro_batch = 0;
  std::string recompute = "block", attention = "fused";
  bool sp = false;  // tensor ranks share the tokens between layers
  // Of a pipeline in full swing each turn of pp micro-batches takes as long as the one before: a
  // step of many is two of few and the difference between them. 0: all are run.
  int turns = 2;
};

struct Candidate {
  int dp, pp, tp, chunks;
  std::int64_t samples;  // of a micro-batch
};

// Stages a rank: as few as interleaving needs, where the layers and micro-batches divide.
int chunks_of(const Search& search, int pp, std::int64_t micro_batches) {
  if (pp == 1 || micro_batches % pp != 0) return 1;
  for (int chunks = 2; chunks <= 3; ++chunks)
    if (search.model.layers % (pp * chunks) == 0) return chunks;
  return 1;
}

std::vector<Candidate> candidates_of(const Search& search, const Machine& machine) {
  std::vector<Candidate> all;
  for (const auto& [dp, pp, tp, samples] :
       mesh_choices({.ranks = search.ranks,
       .layers = search.model.layers,
       .heads = search.model.heads,
       .batch = search.batch,
       .samples = {std::begin(kMicroBatches), std::end(kMicroBatches)}})) {
    if ((search.tp > 0 && tp != search.tp) || (search.pp > 0 && pp != search.pp)) continue;
    if (search.micro_batch > 0 && samples != search.micro_batch) continue;
    if (are_alike({.dp = dp, .pp = pp, .tp = tp}, machine))
      all.push_back({dp, pp, tp, chunks_of(search, pp, search.batch / dp / samples), samples});
  }
  return all;
}

// As Megatron-LM ran in 2021: gradients are summed behind backward.
Options options_of(const Search& search, const Candidate& c, std::int64_t micro_batches) {
  Options o;
  o.ranks = search.ranks;
  o.train.model = search.model;
  o.train.gradient_dtype = search.model.dtype;
  o.train.batch = micro_batches * c.dp * c.samples;
  o.train.micro_batches = micro_batches;
  o.train.recompute = Recompute::parse(search.recompute);
  o.attention = search.attention;
  o.sp = search.sp && c.tp > 1;
  o.train.clip = 1;
  o.train.pp = c.pp;
  o.train.tp = c.tp;
  o.pipeline.schedule = c.chunks > 1 ? "interleaved" : "1f1b";
  o.pipeline.chunks = c.chunks;
  o.data_parallel.overlap = false;
  o.data_parallel.bucket_mb = 1 << 20;  // all in one
  return o;
}

// What is recomputed counted: with all blocks 96 B s l h^2 (1 + s/(6 h) + V/(16 l h)) (Narayanan et
// al., arXiv 2104.04473, equation 3).
double step_flops(const Search& search) {
  const std::int64_t s = search.model.context;
  return static_cast<double>(search.batch * s) *
         (search.model.flops_per_token(s) +
          Recompute::parse(search.recompute).repeated_flops_per_token(search.model, s));
}

// Null: it does not fit.
Json measured(const Search& search, const Machine& machine, const Candidate& c) {
  const std::int64_t micro_batches = search.batch / c.dp / c.samples;
  const PredictedStep step =
      predicted_step(options_of(search, c, micro_batches), search.machine, search.turns);
  if (machine.capacity > 0 && step.bytes > machine.capacity) return {};
  return {{"tp", c.tp},
          {"pp", c.pp},
          {"dp", c.dp},
          {"micro_batch", c.samples},
          {"chunks", c.chunks},
          {"bytes", static_cast<std::int64_t>(step.bytes)},
          {"seconds", step.seconds},
          {"exposed", step.exposed},
          {"flops", step_flops(search) / step.seconds / search.ranks}};
}

void print(const Json& row, std::size_t place) {
  fmt::print("{:>6}{:>6}{:>6}{:>6}{:>13}{:>8}{:>9.1f}{:>11.3f}{:>11.3f}{:>9.1f}\n", place,
             row["tp"].get<int>(), row["pp"].get<int>(), row["dp"].get<int>(),
             row["micro_batch"].get<int>(), row["chunks"].get<int>(),
             row["bytes"].get<double>() / 1e9, row["seconds"].get<double>(),
             row["exposed"].get<double>(), row["flops"].get<double>() / 1e12);
}

Json run(const Search& search) {
  const Machine machine = find_machine(search.machine);
  std::vector<Json> rows;
  std::size_t full = 0;
  for (const Candidate& c : candidates_of(search, machine)) {
    Json row = measured(search, machine, c);
    if (row.is_null())
      ++full;
    else
      rows.push_back(std::move(row));
  }
  if (rows.empty())
    fail(full > 0 ? fmt::format("none of {} meshes fits into {:.0f} GB a rank", full,
                                machine.capacity / 1e9)
                  : "no mesh divides these ranks, layers, heads and the batch");
  std::stable_sort(rows.begin(), rows.end(), [](const Json& a, const Json& b) {
    return a["seconds"].get<double>() < b["seconds"].get<double>();
  });
  fmt::print(
      "{} ranks of {}, {} layers, width {}, a batch of {}; {} fit, {} do not\n\n{:>6}{:>6}{:>6}"
      "{:>6}{:>13}{:>8}{:>9}{:>11}{:>11}{:>9}\n",
      search.ranks, machine.name, search.model.layers, search.model.width, search.batch,
      rows.size(), full, "", "tp", "pp", "dp", "micro-batch", "chunks", "GB", "a step", "exposed",
      "TFLOP/s");
  for (std::size_t i = 0; i < rows.size(); ++i) print(rows[i], i + 1);
  return {{"machine", machine.name}, {"ranks", search.ranks}, {"rows", rows}};
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  aisc::Search search;
  return aisc::measuring_program(
      argc, argv, "Every mesh for a GPT on a machine, from the fastest.",
      [&](aisc::CommandLine& line) {
        line.text("--machine", search.machine, "one of `./aisc machines`");
        line.number("--ranks", search.ranks, 1, 4096, "devices");
        line.number("--batch", search.batch, 1, 1 << 20, "samples of a step, of all ranks");
        line.number("--layers", search.model.layers, 1, 4096, "blocks of the model");
        line.number("--width", search.model.width, 1, 1 << 20, "columns of the model");
        line.number("--heads", search.model.heads, 1, 1 << 20, "of attention");
        line.number("--context", search.model.context, 1, 1 << 20, "tokens of a sample");
        line.number("--vocabulary", search.model.vocabulary, 1, 1 << 24, "tokens that there are");
        line.number("--tp", search.tp, 0, 4096, "only these ranks a layer; 0: all that divide");
        line.number("--pp", search.pp, 0, 4096, "only these ranks a pipeline; 0: all that divide");
        line.number("--micro-batch", search.micro_batch, 0, 8,
                    "only these samples; 0: 1, 2, 4 and 8");
        line.text("--recompute", search.recompute, "none, block, core or every:k");
        line.text("--attention", search.attention, "stored: scores and masks are kept",
                  {"fused", "stored"});
        line.given("--sp", search.sp, "the ranks of a layer share the tokens between layers");
        line.number("--turns", search.turns, 0, 4096, "of the pipeline that are run; 0: all");
      },
      [&] { return aisc::run(search); });
}
