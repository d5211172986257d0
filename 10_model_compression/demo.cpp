// What this module is about, in numbers: how small gradients are beside what F16 can hold, what a
// training in F16 makes of them with and without a loss that is scaled, and why weights and sums
// have more bits.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "10_model_compression/more/gradient_exponents.h"
#include "10_model_compression/number_format.h"
#include "10_model_compression/scaled_step.h"
#include "common/comm/launch.h"
#include "common/core/flags/program.h"
#include "common/core/rng.h"
#include "common/train/trainer.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

struct Asked {
  bool quick = false;
};

// ---- a small GPT ----------------------------------------------------------------------------

// What a loss is multiplied by. The mean over a batch of T tokens gives each a T-th of the
// gradient: a small batch's, times 2^-14, are as small as in a batch of 16,384 times the tokens.
constexpr double kOfLargeBatch = 0x1p-14;

constexpr std::int64_t kLetters = 27;

// Five words in a drawn order; letters are 0 to 25, 26 is the space.
std::vector<std::uint8_t> drawn_words(std::size_t letters) {
  const std::string vocabulary[] = {"ring{", "tree{", "rank{", "mesh{", "chunk{"};
  const Philox random(1, "words");
  std::vector<std::uint8_t> text;
  for (std::uint64_t i = 0; text.size() < letters; ++i)
    for (const char c : vocabulary[random.below(i, 5)])
      text.push_back(static_cast<std::uint8_t>(c - 'a'));  // '{' is behind 'z'
  return text;
}

TrainConfig small_gpt(DType dtype, const Asked& asked) {
  TrainConfig c;
  c.model = {.layers = asked.quick ? 1 : 2,
             .heads = 4,
             .width = asked.quick ? 32 : 64,
             .context = 32,
             .vocabulary = kLetters,
             .vocabulary_multiple = 1,
             .dtype = dtype};
  c.gradient_dtype = dtype;
  c.batch = 8;
  c.steps = asked.quick ? 30 : 100;
  c.warmup_steps = c.steps / 10;
  c.learning_rate = 1e-2;
  c.min_learning_rate = 1e-3;
  c.clip = 0;  // no factor but the scale's
  return c;
}

// With a loss times kOfLargeBatch. AdamW's update does not see the size of gradients but by its
// epsilon, which becomes smaller, too: a type with F32's exponents then learns as without a factor,
// to the last bit.
StepParts of_large_batch() {
  StepParts parts;
  parts.loop = [](const Rank& rank, const Model& model, std::int64_t count,
                  const ReadMicroBatch& read, double loss_factor, Hooks hooks) {
    return one_after_another(rank, model, count, read, kOfLargeBatch * loss_factor, hooks);
  };
  parts.optimizer = [](const Rank&, Mesh*, ParameterStore&, std::vector<OptimizerSlice> slices,
                       const TrainConfig& config) {
    return std::make_unique<AdamW>(std::move(slices),
                                   AdamW::Options{.beta1 = config.beta1,
                                                  .beta2 = config.beta2,
                                                  .epsilon = 1e-8 * kOfLargeBatch,
                                                  .weight_decay = config.weight_decay});
  };
  return parts;
}

// ---- exponents of gradients -------------------------------------------------------------------

constexpr double kScale = 0x1p16;  // PyTorch's first

struct Seen {
  GradientExponents exponents;
  InF16 plain, scaled;
  void add(ConstView gradients) {
    exponents.add(gradients);
    plain.add(gradients, 1);
    scaled.add(gradients, kScale);
  }
};

// A layer whose gradients are looked at on their way to it.
class WatchedLayer final : public Layer {
 public:
  WatchedLayer(const Rank& rank, std::unique_ptr<Layer> inner, Seen& seen)
      : Layer(rank, inner->name()), inner_(std::move(inner)), seen_(seen) {}

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override {
    return inner_->forward(std::move(x), saved, pass);
  }
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override {
    seen_.add(dy);
    return inner_->backward(std::move(dy), saved, pass);
  }
  std::vector<Parameter*> parameters() override { return inner_->parameters(); }
  std::vector<Parameter*> borrows() override { return inner_->borrows(); }
  std::vector<Unit> units() override { return inner_->units(); }

 private:
  const std::unique_ptr<Layer> inner_;
  Seen& seen_;
};

// Of a training in F32: of what blocks answer, and of weights.
struct SeenGradients {
  Seen activations, weights;
};

SeenGradients seen_gradients(const Asked& asked) {
  SeenGradients seen;
  StepParts parts = of_large_batch();
  parts.layers.push_back([&](GptParts of_model) {
    of_model.block = [&, inner = of_model.block](const GptParts::Wanted& wanted) {
      return std::make_unique<WatchedLayer>(wanted.rank, inner(wanted), seen.activations);
    };
    return of_model;
  });
  launch({.ranks = 1}, [&](const Rank& rank) {
    omp_set_num_threads(1);
    const TrainConfig config = small_gpt(DType::F32, asked);
    const std::vector<std::uint8_t> text = drawn_words(20000);
    const BatchSampler data(text, config.model.context, config.seed);
    Trainer trainer(rank, config, parts);
    for (std::int64_t i = 0; i < config.steps; ++i) {
      trainer.step(data);
      for (const Parameter* p : trainer.parameters().parameters()) seen.weights.add(p->grad());
    }
  });
  return seen;
}

const char* fate(int exponent) {
  if (exponent > kF16.largest_exponent()) return "infinity";
  if (exponent >= kF16.smallest_exponent()) return "all bits";
  return exponent >= kF16.smallest_exponent() - kF16.mantissa_bits - 1 ? "fewer bits" : "0";
}

std::string power_of_two(double x) { return fmt::format("2^{:g}", std::log2(x)); }

Json shares_of(const GradientExponents& exponents) {
  Json shares = Json::array();
  const auto all = static_cast<double>(exponents.numbers());
  for (const auto& [exponent, count] : exponents.counts)
    shares.push_back({{"exponent", exponent}, {"share", static_cast<double>(count) / all}});
  return shares;
}

Json fates_of(const std::string& gradients, double scale, const InF16& held) {
  return {{"gradients of", gradients},
          {"times", power_of_two(scale)},
          {"0 %", 100 * held.share(held.lost)},
          {"fewer bits %", 100 * held.share(held.subnormal)},
          {"all bits %", 100 * held.share(held.normal)},
          {"infinity %", 100 * held.share(held.overflow)}};
}

// A # is half a percent. Exponents of few gradients have no row.
void print_exponents(const SeenGradients& seen) {
  const auto percent = [](const Seen& of, int exponent) {
    const auto found = of.exponents.counts.find(exponent);
    const std::int64_t count = found == of.exponents.counts.end() ? 0 : found->second;
    return 100 * static_cast<double>(count) / static_cast<double>(of.exponents.numbers());
  };
  const auto bar = [](double share) {
    const auto length = static_cast<std::size_t>(std::lround(2 * share));
    return fmt::format("{:>4.1f}{}{}", share, length > 0 ? " " : "", std::string(length, '#'));
  };
  fmt::print("{:>5}  {:<12}{:<12}{:<42}{}\n", "", "F16 has", "times 2^16", "% of activations",
             "% of weights");
  for (int e = -60; e < 20; ++e) {
    const double activations = percent(seen.activations, e), weights = percent(seen.weights, e);
    if (activations < 0.25 && weights < 0.25) continue;
    fmt::print("{:>5}  {:<12}{:<12}{:<42}{}\n", fmt::format("2^{}", e), fate(e), fate(e + 16),
               bar(activations), bar(weights));
  }
}

Json exponents(const Asked& asked) {
  fmt::print(
      "Gradients of a small GPT in F32, as of batches of 4 million tokens: how many are from 2^e "
      "to "
      "2^(e + 1)\nlarge, of activations between blocks and of weights, and what F16 has of "
      "these\n\n");
  const SeenGradients seen = seen_gradients(asked);
  print_exponents(seen);
  fmt::print("\nAll of them that are not 0, in F16\n\n");
  const Json fates{fates_of("activations", 1, seen.activations.plain),
                   fates_of("activations", kScale, seen.activations.scaled),
                   fates_of("weights", 1, seen.weights.plain),
                   fates_of("weights", kScale, seen.weights.scaled)};
  print_table(fates);
  return {{"activations", shares_of(seen.activations.exponents)},
          {"weights", shares_of(seen.weights.exponents)},
          {"fates", fates}};
}

// ---- training ---------------------------------------------------------------------------------

struct Form {
  std::string name;
  DType dtype = DType::F16;
  bool scaled = true;
  LossScaleOptions scale = {};
};

Json trained(const Form& form, const Asked& asked) {
  StepParts parts = of_large_batch();
  if (form.scaled) parts.scale = [scale = form.scale] { return scaled_step(scale); };
  Json run{{"name", form.name}, {"losses", Json::array()}, {"scales", Json::array()}};
  launch({.ranks = 1}, [&](const Rank& rank) {
    omp_set_num_threads(1);
    const TrainConfig config = small_gpt(form.dtype, asked);
    const std::vector<std::uint8_t> text = drawn_words(20000);
    const BatchSampler data(text, config.model.context, config.seed);
    Trainer trainer(rank, config, parts);
    double last = 0;
    const std::int64_t of_last = 10;
    for (std::int64_t i = 0; i < config.steps; ++i) {
      const StepReport report = trainer.step(data);
      run["losses"].push_back(report.loss);
      run["scales"].push_back(report.scale);
      if (report.skipped) run["skipped"].push_back(i);
      if (i >= config.steps - of_last) last += report.loss / static_cast<double>(of_last);
    }
    run["last"] = last;
  });
  if (!run.contains("skipped")) run["skipped"] = Json::array();
  return run;
}

// Where it changed, "2^32, 1: 2^31, 5: 2^30": from step 1 on 2^31.
std::string scale_over_time(const Json& scales) {
  std::string words = power_of_two(scales[0]);
  for (std::size_t i = 1; i < scales.size(); ++i)
    if (scales[i] != scales[i - 1]) words += fmt::format(", {}: {}", i, power_of_two(scales[i]));
  return words;
}

Json training(const Asked& asked) {
  const std::vector<Form> forms{{.name = "F32", .dtype = DType::F32, .scaled = false},
                                {.name = "BF16", .dtype = DType::BF16, .scaled = false},
                                {.name = "F16", .scaled = false},
                                {.name = "F16 * 1024", .scale = static_scale(1024)},
                                {.name = "F16 PyTorch", .scale = pytorch_scale()},
                                {.name = "F16 search", .scale = {.initial = 0x1p32, .window = 20}}};
  fmt::print(
      "\nThe same training in other types, F32 masters in all: loss of the last 10 steps, nats a "
      "letter\n\n");
  Json runs = Json::array(), table = Json::array();
  for (const Form& form : forms) {
    runs.push_back(trained(form, asked));
    const Json& run = runs.back();
    table.push_back({{"type", form.name},
                     {"first", run["losses"][0]},
                     {"last", run["last"]},
                     {"first scale", form.scaled ? power_of_two(run["scales"].front()) : "-"},
                     {"last scale", form.scaled ? power_of_two(run["scales"].back()) : "-"},
                     {"steps skipped", run["skipped"].size()}});
  }
  print_table(table);
  fmt::print("The scale of the last, which grows after 20 good steps, from which step on:\n{}\n",
             scale_over_time(runs.back()["scales"]));
  return runs;
}

// ---- weights and sums -------------------------------------------------------------------------

Json masters() {
  constexpr int kUpdates = 1000;
  constexpr double kUpdate = 0x1p-12;
  fmt::print("\nA weight 1 that {} updates of 2^-12 make larger\n\n", kUpdates);
  Json rows = Json::array();
  for (const NumberFormat& format : {kF16, kBF16}) {
    float alone = 1, master = 1;
    for (int i = 0; i < kUpdates; ++i) {
      alone = rounded(format, double{alone} + kUpdate);
      master += static_cast<float>(kUpdate);
    }
    rows.push_back({{"type", format.name},
                    {"neighbours of 1 are apart", std::ldexp(1, -format.mantissa_bits)},
                    {"alone", alone},
                    {"of an F32 master", rounded(format, master)}});
  }
  print_table(rows);
  return rows;
}

Json sums() {
  constexpr int kOnes = 4096;
  fmt::print("\nA sum of {} ones, rounded to a type after each\n\n", kOnes);
  Json rows = Json::array();
  for (const NumberFormat& format : {kE4M3, kBF16, kF16}) {
    float sum = 0;
    for (int i = 0; i < kOnes; ++i) sum = rounded(format, double{sum} + 1);
    rows.push_back(
        {{"type", format.name}, {"bits of mantissa", format.mantissa_bits}, {"sum", sum}});
  }
  float sum = 0;
  for (int i = 0; i < kOnes; ++i) sum += 1;
  rows.push_back({{"type", "F32"}, {"bits of mantissa", 23}, {"sum", sum}});
  print_table(rows);
  return rows;
}

Json run(const Asked& asked) {
  Json json;
  json["exponents"] = exponents(asked);
  json["training"] = training(asked);
  json["masters"] = masters();
  json["sums"] = sums();
  return json;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  aisc::Asked asked;
  return aisc::measuring_program(
      argc, argv, "Short types in numbers: exponents of gradients, scales, masters and sums.",
      [&](aisc::CommandLine& line) {
        line.given("--quick", asked.quick, "a smaller model and fewer steps");
      },
      [&] { return aisc::run(asked); });
}
