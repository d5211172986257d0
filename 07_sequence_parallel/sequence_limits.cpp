// What a layer costs and keeps when ranks share its tokens: Korthikanti et al.'s table 4, in
// virtual time and as ratios on this processor; what each kept tensor costs to make again; what
// fits. Seconds are a machine profile's, bytes a device's without memory (docs/virtual_time.md),
// unless it says measured.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "07_sequence_parallel/more/flops_a_byte.h"
#include "07_sequence_parallel/more/what_fits.h"
#include "common/comm/launch.h"
#include "common/core/flags/program.h"
#include "common/core/rng.h"
#include "common/nn/driver.h"
#include "common/nn/parameter_store.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

// --- table 4 -----------------------------------------------------------------------------------

struct Row {
  const char* name;
  LayerSplit split;
  const char* recompute;
  double forward_ms, backward_ms;  // published
};
constexpr Row kTable4[] = {{"baseline", LayerSplit::Tensor, "none", 7.7, 11.9},
                           {"sequence", LayerSplit::TensorAndSequence, "none", 7.2, 11.8},
                           {"full", LayerSplit::Tensor, "block", 7.7, 19.5},
                           {"selective", LayerSplit::Tensor, "core", 7.7, 13.2},
                           {"both", LayerSplit::TensorAndSequence, "core", 7.2, 13.1}};

constexpr BlockRange kMiddle{.begin = 1, .end = 2, .head = false};  // of three: a block alone

Json table_4() {
  const PublishedModel& model = published_models()[0];
  const auto step_of = [&](const Row& row) {
    SplitStep step = model.step(row.split, row.recompute);
    step.blocks = kMiddle;
    return run_step(find_machine("selene"), model.config(), step);
  };
  const Row& first = kTable4[0];
  const StepFigures baseline = step_of(first);
  const double of_baseline = baseline.forward_seconds + baseline.backward_seconds;
  Json rows = Json::array();
  for (const Row& row : kTable4) {
    const StepFigures step = step_of(row);
    const double total = step.forward_seconds + step.backward_seconds;
    const double published = row.forward_ms + row.backward_ms;
    rows.push_back({{"row", row.name},
                    {"forward", 1e3 * step.forward_seconds},
                    {"backward", 1e3 * step.backward_seconds},
                    {"ms", 1e3 * total},
                    {"over %", 100 * (total / of_baseline - 1)},
                    {"p. forward", row.forward_ms},
                    {"p. backward", row.backward_ms},
                    {"p. ms", published},
                    {"p. over %", 100 * (published / (first.forward_ms + first.backward_ms) - 1)},
                    {"waiting", 1e3 * step.waiting_seconds},
                    {"MB kept", static_cast<double>(step.layer_bytes.at(0)) / 1e6}});
  }
  fmt::print(
      R"(A layer of the model with 22 billion parameters (arXiv 2205.05198, table 4): {} samples of
2048 tokens, {} GPUs that share it, BF16, dropout 0.1, scores and masks stored; virtual time on the
profile selene, one for all rows. "p." is published, ms. Waiting is what no computing hides.

)",
      model.samples, model.tensor);
  print_table(rows);
  return rows;
}

// Every byte that such a layer keeps, in the table's six rows (2).
Json layer() {
  const PublishedModel& model = published_models()[0];
  const GptConfig config = model.config();
  const auto kept = [&](LayerSplit split, int t, const char* recompute) {
    SplitStep step = stored_step(split, t, model.samples, recompute);
    step.blocks = kMiddle;
    const StepFigures figures = run_step(find_machine("selene"), config, step);
    return static_cast<double>(figures.layer_bytes.at(0)) / 1e6;
  };
  // Of the 34 s b h ten are not divided by tensor ranks: what norms get and make, and masks.
  const double undivided = 10 * static_cast<double>(model.samples * config.context) *
                           static_cast<double>(config.width) / 1e6;
  struct {
    const char* name;
    LayerSplit split;
    int t;
    const char* recompute;
  } wanted[] = {{"none", LayerSplit::Tensor, 1, "none"},
                {"tensor", LayerSplit::Tensor, 8, "none"},
                {"sequence", LayerSplit::TensorAndSequence, 8, "none"},
                {"selective", LayerSplit::Tensor, 8, "core"},
                {"both", LayerSplit::TensorAndSequence, 8, "core"},
                {"full", LayerSplit::Tensor, 8, "block"}};
  Json rows = Json::array();
  for (const auto& [name, split, t, recompute] : wanted) {
    const double all = kept(split, t, recompute);
    const bool full = recompute == std::string("block");
    const double others = full ? all : kept(split, t, "core");  // all but the scores
    const double whole = full ? all : undivided / (split == LayerSplit::TensorAndSequence ? t : 1);
    rows.push_back({{"row", name},
                    {"t", t},
                    {"whole", whole},
                    {"products", others - whole},
                    {"scores", all - others},
                    {"MB", all}});
  }
  fmt::print(
      "MB that such a layer keeps of a micro-batch on one of t ranks: of norms, residuals and "
      "their\nmasks, of products and GELU, of attention's scores.\n\n");
  print_table(rows);
  return {{"rows", rows}};
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// The same five on this processor: a block of 192 columns and 8 heads, so that 5 a s/h is theirs,
// F32, two ranks of a thread each, in turns.
Json measured() {
  constexpr int kRounds = 9;
  const GptConfig config{
      .layers = 3, .heads = 8, .width = 192, .context = 512, .vocabulary = 128, .dropout = 0.1};
  std::vector<std::vector<double>> forward(std::size(kTable4)), backward(std::size(kTable4));
  launch({.ranks = 2}, [&](const Rank& rank) {
    for (int round = -1; round < kRounds; ++round)  // the first to warm up
      for (std::size_t i = 0; i < std::size(kTable4); ++i) {
        const SplitStep step = stored_step(kTable4[i].split, 2, 1, kTable4[i].recompute);
        const GptParts parts = step.recompute.parts(step.parts(rank.world));
        const Model model = make_gpt(rank, config, parts, kMiddle);
        ParameterStore own(rank.device, make_units(model, Sync::Data), {});
        ParameterStore copied(rank.device, make_units(model, Sync::DataAndTensor), {});
        for (ParameterStore* store : {&own, &copied}) store->initialize(1);
        Tensor x({1, config.context / parts.token_parts, config.width}, DType::F32, rank.device);
        const Philox random(1, "x");
        std::uint64_t n = 0;
        for (float& value : x.values<float>()) value = static_cast<float>(random.normal(n++));
        Tensor dy = x.clone();
        std::vector<Saved> saved(1);
        rank.world.barrier();
        const double begin = rank.clock.now();
        forward_layers(model, std::move(x), saved, {});
        rank.world.barrier();
        const double between = rank.clock.now();
        backward_layers(model, std::move(dy), saved, {});
        rank.world.barrier();
        if (rank.world.rank() != 0 || round < 0) continue;
        forward[i].push_back(between - begin);
        backward[i].push_back(rank.clock.now() - between);
      }
  });
  Json rows = Json::array();
  const double baseline = median(forward[0]) + median(backward[0]);
  for (std::size_t i = 0; i < std::size(kTable4); ++i) {
    const double total = median(forward[i]) + median(backward[i]);
    rows.push_back({{"row", kTable4[i].name},
                    {"forward", 1e3 * median(forward[i])},
                    {"backward", 1e3 * median(backward[i])},
                    {"ms", 1e3 * total},
                    {"over %", 100 * (total / baseline - 1)}});
  }
  fmt::print(
      R"(Measured on this processor: a layer of {} columns and {} heads, {} tokens, F32, two ranks of
a thread each, medians of {} rounds, in turns; ms.

)",
      config.width, config.heads, config.context, kRounds);
  print_table(rows);
  return rows;
}

// --- what to make again ------------------------------------------------------------------------

Json flops_a_byte() {
  const PublishedModel& model = published_models()[1];  // GPT-3
  const std::vector<KeptTensor> kept = kept_tensors(find_machine("selene"), model.config(), 1);
  double bytes = 0, flops = 0, seconds = 0;
  for (const KeptTensor& tensor : kept) {
    bytes += tensor.bytes;
    flops += tensor.flops;
    seconds += tensor.seconds;
  }
  Json rows = Json::array();
  for (const KeptTensor& tensor : kept)
    rows.push_back({{"kept", tensor.name},
                    {"core", tensor.of_core ? "yes" : ""},
                    {"MB", tensor.bytes / 1e6},
                    {"of it %", 100 * tensor.bytes / bytes},
                    {"FLOPs %", 100 * tensor.flops / flops},
                    {"time %", 100 * tensor.seconds / seconds},
                    {"FLOP/B", tensor.flops_a_byte()}});
  fmt::print(
      R"(What a layer of GPT-3 ({} heads, {} columns) keeps of a sample of 2048 tokens, one rank: the
share of its bytes, and of the FLOPs and the time (selene) of a forward that makes each once.

)",
      model.heads, model.width);
  print_table(rows);
  return rows;
}

// --- what fits ---------------------------------------------------------------------------------

Json models() {
  const double capacity = find_machine("selene").capacity;
  Json rows = Json::array();
  for (const PublishedModel& model : published_models())
    for (const Row& form : kTable4) {
      const StageBytes bytes = first_stage(model, model.step(form.split, form.recompute));
      rows.push_back({{"model", model.name},
                      {"row", form.name},
                      {"weights", bytes.weights / 1e9},
                      {"gradients", bytes.gradients / 1e9},
                      {"optimizer", bytes.optimizer / 1e9},
                      {"activations", bytes.activations / 1e9},
                      {"GB", bytes.total() / 1e9},
                      {"fits", bytes.total() <= capacity ? "yes" : "no"}});
    }
  fmt::print(
      R"(GB of a GPU of the first stage (arXiv 2205.05198, table 3): 8 GPUs share each layer, 1F1B with
1, 8, 35 and 64 stages keeps as many micro-batches, of 4, 1, 1 and 1 samples. Weights and gradients
BF16, AdamW with a copy in F32. Rows as above; an A100 has {:.0f}.

)",
      capacity / 1e9);
  print_table(rows);
  return {{"rows", rows}, {"capacity", capacity / 1e9}};
}

Json largest() {
  const Machine machine = find_machine("dgx-a100");
  // 4 blocks between two others: no embedding, no head.
  GptConfig config{.layers = 6,
                   .heads = 64,
                   .width = 8192,
                   .context = 2048,
                   .vocabulary = 128,
                   .dropout = 0.1,
                   .dtype = DType::BF16};
  const auto fits = [&](LayerSplit split, int t, std::int64_t samples, std::int64_t tokens) {
    config.context = tokens;
    SplitStep step = fused_step(split, t, samples);
    step.blocks = {.begin = 1, .end = 5};
    const StepFigures figures = run_step(machine, config, step);
    return static_cast<double>(figures.ledger.total.peak_bytes) <= machine.capacity;
  };
  constexpr std::int64_t kTokens = 64;  // the ranks divide a sequence: steps of so many
  Json rows = Json::array();
  for (int t = 1; t <= 64; t *= 2) {
    Json row{{"t", t}};
    for (const auto& [name, split] :
         {std::pair{"tp", LayerSplit::Tensor}, {"sp", LayerSplit::TensorAndSequence}}) {
      const LayerSplit of = split;
      row[fmt::format("{} samples", name)] =
          largest_that_fits([&](std::int64_t n) { return fits(of, t, n, 2048); });
      row[fmt::format("{} tokens", name)] =
          kTokens * largest_that_fits([&](std::int64_t n) { return fits(of, t, 1, kTokens * n); });
    }
    rows.push_back(row);
  }
  fmt::print(
      R"(The most samples of 2048 tokens, and the longest sequence of one sample, whose step has a peak
of at most {:.0f} GB: 4 blocks of {} columns, fused attention, BF16, AdamW; t ranks share the layers
(tp), or the tokens as well (sp).

)",
      machine.capacity / 1e9, config.width);
  print_table(rows);
  return rows;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::measuring_program(
      argc, argv, "What a layer costs and keeps when ranks share its tokens.",
      [](aisc::CommandLine&) {},
      [] {
        return nlohmann::ordered_json{
            {"table_4", aisc::table_4()},   {"layer", aisc::layer()},
            {"measured", aisc::measured()}, {"flops_a_byte", aisc::flops_a_byte()},
            {"models", aisc::models()},     {"largest", aisc::largest()}};
      });
}
