// What this module makes that costs time, on this machine: steps of a BERT whose texts have
// different lengths beside full ones, samples beside such a step, attention to another text beside
// the machine's peak, losses of smoothed labels beside its memory, and translations that grow token
// by token. What is compared runs in turns, and what comes out is checked.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "12_encoders/bert.h"
#include "12_encoders/bert_samples.h"
#include "12_encoders/cross_attention.h"
#include "12_encoders/encoder_decoder.h"
#include "12_encoders/more/toy_translation.h"
#include "12_encoders/more/translator.h"
#include "common/comm/launch.h"
#include "common/core/error.h"
#include "common/core/flags/program.h"
#include "common/core/median.h"
#include "common/core/rng.h"
#include "common/core/system/machine.h"
#include "common/nn/driver.h"
#include "common/nn/parameter_store.h"
#include "common/train/micro_batch.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;
using Ids = std::vector<std::int32_t>;

struct Asked {
  std::string part = "all";
  int rounds = 7, threads = available_cores(), width = 256;
};

double real(std::int64_t n) { return static_cast<double>(n); }

// Throws Error unless they are as close as the order of sums in F32 allows.
void check(const std::string& what, double found, double expected, double allowed = 1e-4) {
  if (!(std::abs(found - expected) <= allowed * std::max(1.0, std::abs(expected))))
    fail(fmt::format("{}: {}, expected {}", what, found, expected));
}

Json shown(const std::string& text, Json rows) {
  fmt::print("{}\n\n", text);
  print_table(rows);
  fmt::print("\n");
  return rows;
}

// Median seconds of each, of rounds in turns; the first prepares. `before` each comes what they are
// measured against.
std::vector<double> in_turns(
    int rounds, const std::vector<std::function<void()>>& works,
    const std::function<void()>& before = [] {}) {
  std::vector<std::vector<double>> seconds(works.size());
  for (int round = -1; round < rounds; ++round) {
    before();
    for (std::size_t i = 0; i < works.size(); ++i) {
      const double begin = omp_get_wtime();
      works[i]();
      if (round >= 0) seconds[i].push_back(omp_get_wtime() - begin);
    }
  }
  std::vector<double> medians(works.size());
  std::transform(seconds.begin(), seconds.end(), medians.begin(), median);
  return medians;
}

Tensor random_tensor(const Shape& shape, const std::string& name, Device& device) {
  Tensor x(shape, DType::F32, device);
  const Philox random(1, name);
  std::uint64_t i = 0;
  for (float& value : x.values<float>()) value = static_cast<float>(random.normal(i++));
  return x;
}

double dot(const Tensor& a, const Tensor& b) {
  return std::inner_product(a.data<float>(), a.data<float>() + a.count(), b.data<float>(), 0.0);
}

void on_one_rank(const Asked& asked, const std::function<void(const Rank&)>& body) {
  launch({.ranks = 1, .bind = false}, [&](const Rank& rank) {
    omp_set_num_threads(asked.threads);
    body(rank);
  });
}

// ---- texts of different lengths -----------------------------------------------------------------

constexpr std::int64_t kTokens = 128, kTexts = 16, kWords = 8192;

Ids random_words(const std::string& name, std::int64_t text, std::int64_t count) {
  const Philox random(1, name, static_cast<std::uint64_t>(text));
  Ids ids(index(count));
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int32_t>(5 + random.below(i, kWords - 5));
  return ids;
}

// Of n tokens, 15 % of which, at the end, are to be guessed.
MaskedPair text_of(std::int64_t i, std::int64_t n) {
  MaskedPair text{.tokens = random_words("text", i, n), .segments = Ids(index(n))};
  text.places.resize(index(masked_count(n, most_masked(kTokens))));
  std::iota(text.places.begin(), text.places.end(), n - std::ssize(text.places));
  text.targets = random_words("words", i, std::ssize(text.places));
  return text;
}

// Batches, each padded to its longest text.
struct TextForm {
  std::string name;
  std::vector<std::vector<MaskedPair>> batches;
  std::vector<Batch> padded = {};
  double own = 0, places = 0, flops = 0;  // tokens, with padding; of own tokens alone
  double loss = 0, gradient = 0;
};

void pad(TextForm& form, const GptConfig& c, Device& device) {
  const double C = real(c.width), L = real(c.layers), V = real(c.table_rows());
  for (const auto& batch : form.batches) {
    std::int64_t T = 0;
    for (const MaskedPair& text : batch) {
      T = std::max<std::int64_t>(T, std::ssize(text.tokens));
      const double n = real(std::ssize(text.tokens)), m = real(std::ssize(text.places));
      form.own += n;
      // Weights, scores and values of blocks; the two heads.
      form.flops += 72 * L * n * C * C + 12 * L * n * n * C + 6 * C * C + 6 * m * C * (C + V);
    }
    form.places += real(T * std::ssize(batch));
    form.padded.push_back(pad_masked_pairs(device, batch, T, most_masked(kTokens), 0));
  }
}

Json steps(const Asked& asked) {
  const GptConfig config{.layers = 4,
                         .heads = 4,
                         .width = asked.width,
                         .context = kTokens,
                         .vocabulary = kWords,
                         .encoder_blocks = 4};
  Json rows = Json::array();
  on_one_rank(asked, [&](const Rank& rank) {
    const BertOptions options{.batch = kTexts, .predictions = most_masked(kTokens)};
    Model model = make_gpt(rank, config, bert_parts(options, gpt2_parts(), nullptr));
    ParameterStore store(rank.device, make_units(model), {});
    store.initialize(1);
    std::vector<MaskedPair> full, mixed;
    const Philox random(1, "lengths");
    for (std::int64_t i = 0; i < kTexts; ++i) {
      full.push_back(text_of(i, kTokens));
      mixed.push_back(text_of(i, 16 + static_cast<std::int64_t>(random.below(index(i), 113))));
    }
    std::sort(mixed.begin(), mixed.end(),
              [](const auto& a, const auto& b) { return a.tokens.size() < b.tokens.size(); });
    std::vector<std::vector<MaskedPair>> quarters(4);
    for (std::size_t i = 0; i < mixed.size(); ++i) quarters[4 * i / kTexts].push_back(mixed[i]);
    TextForm forms[] = {{"full", {full}}, {"mixed", {mixed}}, {"mixed, by length", quarters}};
    std::vector<std::function<void()>> works;
    for (TextForm& form : forms) {
      pad(form, config, rank.device);
      double words = 0;
      for (const Batch& batch : form.padded) words += batch.terms;
      works.emplace_back([&, words] {
        store.clear_grads();
        form.loss = 0;
        for (const Batch& batch : form.padded) {
          const MicroBatch micro = micro_batch_of(batch.share(), {.terms = words});
          form.loss += forward_backward(model, micro.batch.tokens, micro.batch.targets, micro.pass,
                                        1 / words);
        }
        store.complete_grads();
        form.gradient = std::sqrt(ops::sum_of_squares(store.grads()));
      });
    }
    PeakEstimate peak;
    const std::vector<double> seconds = in_turns(
        asked.rounds, works, [&] { peak.add(measure_peak_slice(DType::F32, asked.threads)); });
    check("loss of texts by length", forms[2].loss, forms[1].loss);
    check("gradient of texts by length", forms[2].gradient, forms[1].gradient);
    for (std::size_t i = 0; i < std::size(forms); ++i)
      rows.push_back({{"texts", forms[i].name},
                      {"tokens", forms[i].own},
                      {"padding %", 100 * (1 - forms[i].own / forms[i].places)},
                      {"ms", 1e3 * seconds[i]},
                      {"own tokens/s", forms[i].own / seconds[i]},
                      {"of peak", forms[i].flops / seconds[i] / peak.flops()}});
  });
  return shown(
      fmt::format("A step of a BERT of 4 layers and {} columns, {} texts, forward and backward",
                  asked.width, kTexts),
      rows);
}

// ---- samples ------------------------------------------------------------------------------------

// 50 documents of 200 sentences of 5 to 40 words.
Documents documents() {
  std::int64_t sentence = 0;
  const Philox random(1, "sentences");
  return {std::vector(50, Document{Stretch(200, "drawn")}), [&](std::string_view) {
            const auto i = static_cast<std::uint64_t>(++sentence);
            return random_words("sentence", sentence,
                                5 + static_cast<std::int64_t>(random.below(i, 36)));
          }};
}

Json samples(const Asked& asked) {
  constexpr std::int64_t kSamples = 256;
  const Documents all = documents();
  CpuDevice device;
  Json rows = Json::array();
  for (const std::int64_t T : {128, 512}) {
    const BertSamples source(all, {.context = T, .vocabulary = kWords});
    double counted = 0;
    std::int64_t first = 0;
    Batch batch;
    const std::vector<double> seconds =
        in_turns(asked.rounds,
                 {[&] { batch = source.batch(device, first, kSamples); },
                  [&] { counted = source.terms(first, kSamples); }},
                 [&] { first += kSamples; });
    check("words to be guessed", counted, batch.terms);
    const auto own = batch.lengths.values<std::int32_t>();
    rows.push_back({{"T", T},
                    {"us a sample", 1e6 * seconds[0] / kSamples},
                    {"tokens", std::accumulate(own.begin(), own.end(), 0.0) / kSamples},
                    {"us to count its words", 1e6 * seconds[1] / kSamples}});
  }
  return shown("Samples of BERT, of documents in memory, on one thread", rows);
}

// ---- attention to another text ------------------------------------------------------------------

Json cross(const Asked& asked) {
  constexpr std::int64_t B = 16, T = 64, S = 128, H = 8;
  const std::int64_t C = 2 * asked.width;
  Json rows = Json::array();
  on_one_rank(asked, [&](const Rank& rank) {
    CrossAttention layer(rank, "cross", H, std::make_unique<Linear>(rank, "cross.q", C, C),
                         std::make_unique<Linear>(rank, "cross.kv", C, 2 * C),
                         std::make_unique<Linear>(rank, "cross.project", C, C));
    ParameterStore store(rank.device, {{"cross", layer.parameters()}}, {});
    store.initialize(1);
    const Tensor x = random_tensor({B, T, C}, "x", rank.device),
                 dy = random_tensor({B, T, C}, "dy", rank.device);
    SideInput side{.value = random_tensor({B, S, C}, "value", rank.device)};
    Saved saved;
    Tensor y, dx;
    PeakEstimate peak;
    const std::vector<double> seconds =
        in_turns(asked.rounds,
                 {[&] { y = layer.forward(x.share(), saved, {.side = &side}); },
                  [&] { dx = layer.backward(dy.share(), saved, {.side = &side}); }},
                 [&] {
                   peak.add(measure_peak_slice(DType::F32, asked.threads));
                   store.clear_grads();
                   side.grad = {};
                 });
    // <dy, y(x + e dx) - y(x)> = e <dx, dx> up to e^2, a step of .3 in each number.
    const double step = 0.3 / std::sqrt(dot(dx, dx) / real(dx.count()));
    const Tensor moved = x.clone();
    for (std::size_t i = 0; i < moved.values<float>().size(); ++i)
      moved.values<float>()[i] += static_cast<float>(step) * dx.values<float>()[i];
    const Tensor after = layer.forward(moved.share(), saved, {.side = &side});
    check("rise along the gradient", (dot(dy, after) - dot(dy, y)) / step / dot(dx, dx), 1, 0.02);
    const double weights = real(4 * B * C * C * (T + S));
    const double scores = real(2 * B * T * S * C);
    const double flops[] = {weights + 2 * scores, 2 * weights + 5 * scores};
    for (const std::size_t i : {0u, 1u})
      rows.push_back({{"what", i == 0 ? "forward" : "backward"},
                      {"ms", 1e3 * seconds[i]},
                      {"GFLOP/s", 1e-9 * flops[i] / seconds[i]},
                      {"of peak", flops[i] / seconds[i] / peak.flops()}});
  });
  return shown(
      fmt::format("Attention of {} texts of {} tokens to {} others each, {} columns", B, T, S, C),
      rows);
}

// ---- smoothed labels ----------------------------------------------------------------------------

Json losses(const Asked& asked) {
  constexpr std::int64_t N = 1024, V = 30528;  // BERT's words, padded
  constexpr double kSmoothings[] = {0, 0.1};
  omp_set_num_threads(asked.threads);
  CpuDevice device;
  const Tensor scores = random_tensor({N, V}, "scores", device),
               targets = Tensor::zeros({N}, DType::I32, device),
               dscores({N, V}, DType::F32, device), loss({N}, DType::F32, device),
               sums({N}, DType::F32, device);
  std::vector<std::function<void()>> works;
  for (const double smoothing : kSmoothings) {
    works.emplace_back(
        [&, smoothing] { ops::cross_entropy(loss, sums, scores, targets, V, {}, smoothing); });
    works.emplace_back([&, smoothing] {
      ops::cross_entropy_backward(dscores, scores, sums, targets, V, 1, {}, smoothing);
    });
  }
  std::vector<double> bandwidths;
  const std::vector<double> seconds = in_turns(
      asked.rounds, works, [&] { bandwidths.push_back(measure_read_bandwidth(asked.threads)); });
  const auto row = scores.values<float>().first(V), drow = dscores.values<float>().first(V);
  check("loss", loss.values<float>()[0],
        sums.values<float>()[0] - 0.9 * double{row[0]} -
            0.1 * std::accumulate(row.begin(), row.end(), 0.0) / V);
  check("sum of a gradient", std::accumulate(drow.begin(), drow.end(), 0.0), 0);
  Json rows = Json::array();
  for (std::size_t i = 0; i < works.size(); ++i) {
    const bool backward = i % 2 == 1;  // which writes as many, too
    const double rate = real((backward ? 8 : 4) * N * V) / seconds[i];
    rows.push_back({{"what", backward ? "backward" : "forward"},
                    {"smoothing", kSmoothings[i / 2]},
                    {"ms", 1e3 * seconds[i]},
                    {"GB/s", 1e-9 * rate},
                    {"of bandwidth", rate / median(bandwidths)}});
  }
  return shown(fmt::format("The loss of {} rows of {} scores, beside reading memory", N, V), rows);
}

// ---- translations -------------------------------------------------------------------------------

Json translations(const Asked& asked) {
  const ToyVocabulary words;
  const GptConfig config{.layers = 4,
                         .heads = 4,
                         .width = asked.width / 4,
                         .context = kToySource,
                         .vocabulary = words.size(),
                         .encoder_blocks = 2};
  Json rows = Json::array();
  on_one_rank(asked, [&](const Rank& rank) {
    Model model = make_gpt(
        rank, config, encoder_decoder_parts({.decoder_tokens = kToyTarget}, gpt2_parts(), nullptr));
    ParameterStore store(rank.device, make_units(model), {});
    store.initialize(1);
    const Translator translator(
        rank, model, config, {.ids = words.ids(), .source_tokens = kToySource, .most = kToyTarget});
    constexpr std::size_t kCounts[] = {1, 8, 64};
    std::vector<Ids> sources, said[std::size(kCounts)];
    for (const ToyLine& line : held_out_lines(64)) sources.push_back(words.encode(line.english));
    std::vector<std::function<void()>> works;
    for (std::size_t i = 0; i < std::size(kCounts); ++i)
      works.emplace_back([&, i] {
        said[i] = translator.translate_greedily(std::span<const Ids>(sources).first(kCounts[i]));
      });
    const std::vector<double> seconds = in_turns(asked.rounds, works);
    for (std::size_t i = 0; i < std::size(kCounts); ++i) {
      if (said[i][0] != said[0][0]) fail("a translation differs with what is translated beside it");
      double tokens = 0;
      for (const Ids& text : said[i]) tokens += real(std::ssize(text));
      rows.push_back(
          {{"sources", kCounts[i]}, {"ms", 1e3 * seconds[i]}, {"tokens/s", tokens / seconds[i]}});
    }
  });
  return shown(fmt::format("Greedy translations of {} tokens, 2 + 2 blocks of {} columns",
                           kToyTarget - 1, config.width),
               rows);
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  using namespace aisc;
  constexpr std::pair<const char*, Json (*)(const Asked&)> kParts[] = {
      {"steps", steps},
      {"samples", samples},
      {"cross", cross},
      {"losses", losses},
      {"translations", translations}};
  Asked asked;
  return measuring_program(
      argc, argv, "What encoders cost on this machine: steps, samples, losses, translations.",
      [&](CommandLine& line) {
        line.text("--part", asked.part, "what is measured",
                  {"all", "steps", "samples", "cross", "losses", "translations"});
        line.number("--rounds", asked.rounds, 1, 10000,
                    "times that each is measured, in turns; the median counts");
        line.number("--threads", asked.threads, 1, 1024, "threads; all that there are cores for");
        line.number("--width", asked.width, 32, 4096,
                    "columns of the BERT; twice as many of attention, a quarter of a translation");
      },
      [&] {
        Json json;
        for (const auto& [name, measure] : kParts)
          if (asked.part == "all" || asked.part == name) json[name] = measure(asked);
        return json;
      });
}
