// What stays longer than eight bits? Gradients of a small GPT, dense and with experts, at
// weights that a training in F32 has reached: how far they are from F32's where some layers are in
// F8. And what losses of whole trainings say about the same.
#include <fmt/format.h>
#include <omp.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "08_moe/expert_parallel.h"
#include "10_model_compression/more/f8_training.h"
#include "common/comm/launch.h"
#include "common/core/flags/program.h"
#include "common/core/range.h"
#include "common/data/corpus.h"
#include "common/train/trainer.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

struct F8Asked {
  bool quick = false;
};

// A form of the same model: its type, or F32 with layers in F8.
struct Precision {
  std::string name;
  DType dtype = DType::F32;
  bool f8 = false;
  F8Options options = {};
  std::uint64_t seed = 1;
};

TrainConfig gpt_of(const F8Asked& asked, std::int64_t experts, std::int64_t steps, DType dtype) {
  return {.model = {.layers = asked.quick ? 2 : 4,
                    .heads = 4,
                    .width = asked.quick ? 32 : 128,
                    .context = asked.quick ? 16 : 64,
                    .vocabulary = 256,
                    .vocabulary_multiple = 1,
                    .dtype = dtype,
                    .experts = {.count = experts}},
          .batch = 16,
          .steps = steps,
          .learning_rate = 2e-3,
          .min_learning_rate = 2e-4,
          .warmup_steps = 50};
}

// Each of `count` bodies on one thread, two at a time.
void on_two_threads(std::size_t count,
                    const std::function<void(const Rank& own, std::size_t i)>& body) {
  launch({.ranks = 2, .bind = false}, [&](const Rank& rank) {
    omp_set_num_threads(1);
    const auto alone = make_self_communicator("f8_gradients");
    const Rank own{*alone, rank.device, rank.clock, rank.trace};
    for (std::size_t i = index(rank.world.rank()); i < count; i += 2) body(own, i);
  });
}

// As print_table prints them, with room for names.
Json printed(Json rows) {
  for (const auto& [key, value] : rows[0].items()) fmt::print("{:<28}", key);
  for (const Json& row : rows)
    for (const Json& value : row)
      fmt::print("{}", value.is_string() ? fmt::format("\n{:<28}", value.get<std::string>())
                                         : fmt::format("{:<28.4g}", value.get<double>()));
  fmt::print("\n\n");
  return rows;
}

// Of each batch, one behind the other, at the weights of `trainer`.
std::vector<float> gradients_of(const Rank& rank, const Trainer& trainer,
                                const Precision& precision, const std::vector<Batch>& batches) {
  GptConfig config = trainer.config().model;
  config.dtype = precision.dtype;
  GptParts parts = config.experts.count > 0 ? expert_parts(gpt2_parts(), nullptr) : gpt2_parts();
  if (precision.f8) parts = f8_parts(std::move(parts), precision.options);
  Model model = make_gpt(rank, config, parts);
  std::vector<std::unique_ptr<ParameterStore>> stores;
  for (const ParameterStore* from : trainer.stores()) {
    stores.push_back(std::make_unique<ParameterStore>(
        rank.device, make_units(model, from->parameters()[0]->sync),
        ParameterStore::Options{.value_dtype = precision.dtype}));
    ops::cast(stores.back()->values(), from->values());
  }
  std::vector<float> gradients;
  for (const Batch& batch : batches) {
    for (const auto& store : stores) store->clear_grads();
    const double one = 1 / static_cast<double>(batch.tokens.count());  // a token's part of the mean
    ExtraLoss extra{.factor = one};
    forward_backward(model, batch.tokens, batch.targets, {.training = true, .extra = &extra}, one);
    for (const auto& store : stores) {
      store->complete_grads();
      const auto values = store->grads().values<float>();
      gradients.insert(gradients.end(), values.begin(), values.end());
    }
  }
  return gradients;
}

// |a - exact| / |exact|
double distance(const std::vector<float>& a, const std::vector<float>& exact) {
  double difference = 0, length = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    difference += std::pow(double{a[i]} - exact[i], 2);
    length += std::pow(double{exact[i]}, 2);
  }
  return std::sqrt(difference / length);
}

Json gradients(const F8Asked& asked, const Corpus& text) {
  const std::int64_t steps = asked.quick ? 20 : 300;
  constexpr std::int64_t kBatches = 4, kBatch = 32,
                         kUnseen = 100'000;  // samples; training sees 4,800
  const std::vector<Precision> forms{
      {"F32"},
      {"nothing: BF16", DType::BF16},
      {"linears, scale of a block", DType::F32, true},
      {"linears, scale of a tensor", DType::F32, true, {.scale = F8Scale::Tensor}},
      {"gradients in E4M3", DType::F32, true, {.gradients = kE4M3}},
      {"values in E5M2", DType::F32, true, {.values = kE5M2}},
      {"head", DType::F32, true, {.layers = {.linears = false, .head = true}}},
      {"norms", DType::F32, true, {.layers = {.linears = false, .norms = true}}},
      {"router", DType::F32, true, {.layers = {.linears = false, .router = true}}},
      {"all of these", DType::F32, true, {.layers = {true, true, true, true}}}};
  std::vector<std::vector<std::vector<float>>> found(2);
  on_two_threads(found.size(), [&](const Rank& own, std::size_t i) {
    const TrainConfig config = gpt_of(asked, i == 0 ? 0 : 4, steps, DType::F32);
    Trainer trainer(own, config, i == 0 ? StepParts{} : expert_parallel());
    const BatchSampler data(text.training, config.model.context, 1);
    for (std::int64_t s = 0; s < steps; ++s) trainer.step(data);
    std::vector<Batch> batches;
    for (std::int64_t b = 0; b < kBatches; ++b)
      batches.push_back(data.batch(own.device, kUnseen + b * kBatch, kBatch));
    for (const Precision& form : forms)
      found[i].push_back(gradients_of(own, trainer, form, batches));
  });
  Json rows = Json::array();
  for (std::size_t f = 1; f < forms.size(); ++f)
    rows.push_back({{"in F8", forms[f].name},
                    {"dense %", 100 * distance(found[0][f], found[0][0])},
                    {"4 experts %", 100 * distance(found[1][f], found[1][0])}});
  fmt::print(
      "Gradients of {} batches of {} behind {} steps in F32: how far from F32's, of its length\n\n",
      kBatches, kBatch, steps);
  return printed(rows);
}

Json losses(const F8Asked& asked, const Corpus& text) {
  const std::int64_t steps = asked.quick ? 20 : 400;
  const std::vector<Precision> forms{
      {"BF16", DType::BF16},
      {"BF16, another seed", DType::BF16, false, {}, 2},
      {"linears, scale of a block", DType::BF16, true},
      {"linears, scale of a tensor", DType::BF16, true, {.scale = F8Scale::Tensor}},
      {"linears, delayed scales", DType::BF16, true, {.scale = F8Scale::Delayed}},
      {"linears and head", DType::BF16, true, {.layers = {.head = true}}}};
  std::vector<double> found(forms.size());
  on_two_threads(forms.size(), [&](const Rank& own, std::size_t i) {
    TrainConfig config = gpt_of(asked, 0, steps, forms[i].dtype);
    config.seed = forms[i].seed;
    Trainer trainer(own, config, forms[i].f8 ? f8_training(forms[i].options) : StepParts{});
    const BatchSampler data(text.training, config.model.context, 1);
    for (std::int64_t s = 0; s < steps; ++s) trainer.step(data);
    std::vector<Batch> windows;
    windows.push_back(even_windows(text.validation, config.model.context, 128, own.device));
    found[i] = trainer.evaluate(windows);
  });
  Json rows = Json::array();
  for (std::size_t i = 0; i < forms.size(); ++i)
    rows.push_back({{"in F8", forms[i].name}, {"loss", found[i]}});
  fmt::print("Validation losses of the dense model behind {} steps, nats a byte\n\n", steps);
  return printed(rows);
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  aisc::F8Asked asked;
  return aisc::measuring_program(
      argc, argv, "How far gradients are from F32's, with which layers in F8.",
      [&](aisc::CommandLine& line) {
        line.given("--quick", asked.quick, "a smaller model and fewer steps");
      },
      [&] {
        const aisc::Corpus text = aisc::read_corpus(AISC_SOURCE_DIR, aisc::course_prose());
        const aisc::Json of_gradients = aisc::gradients(asked, text);
        return aisc::Json{{"gradients", of_gradients}, {"losses", aisc::losses(asked, text)}};
      });
}
