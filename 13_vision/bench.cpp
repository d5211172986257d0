// What costs time here: filters as products beside 06's loops and the machine's peak, norms and
// pooling beside its memory, statistics of all ranks, steps of the classifier by layer, by norm,
// with experts, on ranks. What is compared runs in turns, and what comes out is checked.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "05_pipeline/planner.h"
#include "13_vision/channel_moments.h"
#include "13_vision/classifier_stages.h"
#include "13_vision/classifier_step.h"
#include "13_vision/pooling.h"
#include "common/comm/host_values.h"
#include "common/comm/launch.h"
#include "common/core/error.h"
#include "common/core/flags/program.h"
#include "common/core/median.h"
#include "common/core/rng.h"
#include "common/core/system/machine.h"
#include "common/core/system/polite_waits.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;
using Works = std::vector<std::function<void()>>;

struct Asked {
  std::string part = "all";
  int rounds = 7, threads = available_cores(), ranks = 2;
  std::int64_t images = 64, width = 16;
};

double real(std::int64_t n) { return static_cast<double>(n); }

void check(const std::string& what, double found, double expected, double allowed) {
  if (!(std::abs(found - expected) <= allowed * std::max(1.0, std::abs(expected))))
    fail(fmt::format("{}: {}, expected {}", what, found, expected));
}

// Throws Error unless they are as close as the order of sums in F32 allows.
void check(const std::string& what, ConstView found, ConstView expected) {
  double largest = 0, apart = 0;
  for (std::int64_t i = 0; i < expected.count(); ++i) {
    const double e = expected.data<float>()[i], f = found.data<float>()[i];
    largest = std::max(largest, std::abs(e));
    apart = std::max(apart, std::isfinite(f) ? std::abs(f - e) : HUGE_VAL);
  }
  check(what, apart, 0, 1e-4 * largest);
}

Json shown(const std::string& text, Json rows) {
  fmt::print("{}\n\n", text);
  print_table(rows);
  fmt::print("\n");
  return rows;
}

// Median seconds of each, in turns; the first round prepares. `before` runs before each round.
std::vector<double> in_turns(int rounds, const Works& works, std::function<void()> before = {}) {
  std::vector<std::vector<double>> seconds(works.size());
  for (int round = -1; round < rounds; ++round) {
    if (before) before();
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

void on_ranks(const Asked& asked, int ranks, const std::function<void(const Rank&)>& body) {
  launch({.ranks = ranks, .bind = false}, [&](const Rank& rank) {
    omp_set_num_threads(std::max(1, asked.threads / ranks));
    body(rank);
  });
}

// ---- filters ------------------------------------------------------------------------------------

struct FilterForm {
  std::string name;
  std::int64_t images, in, out, side;
};

void add_filters(const Asked& asked, const Rank& rank, const FilterForm& form, Json& rows) {
  const FilterSizes sizes{.in = form.in, .out = form.out, .bias = FilterSizes::Bias::No};
  ConvolutionLayer layer(rank, "filters", sizes);
  ParameterStore store(rank.device, {{"filters", layer.parameters()}}, {});
  store.initialize(1);
  const Parameter& weight = *layer.parameters()[0];
  const Tensor x = random_tensor({form.images, form.in, form.side, form.side}, "x", rank.device),
               dy = random_tensor({form.images, form.out, form.side, form.side}, "dy", rank.device),
               loop_y(dy.shape(), DType::F32, rank.device),
               loop_dx(x.shape(), DType::F32, rank.device),
               loop_dw(weight.shape, DType::F32, rank.device);
  Saved saved;
  Tensor y, dx;
  PeakEstimate peak;
  const ConvolutionOptions options = sizes.options();
  const std::vector<double> seconds =
      in_turns(asked.rounds,
               {[&] { y = layer.forward(x.share(), saved, {}); },
                [&] { dx = layer.backward(dy.share(), saved, {}); },
                [&] { convolution(loop_y, x, weight.value(), options); },
                [&] {
                  convolution_input_gradient(loop_dx, dy, weight.value(), options);
                  convolution_filter_gradient(loop_dw, dy, x, options);
                }},
               [&] {
                 peak.add(measure_peak_slice(DType::F32, asked.threads));
                 store.clear_grads();
               });
  check(form.name + ", y", y, loop_y);
  check(form.name + ", dx", dx, loop_dx);
  check(form.name + ", dweight", weight.grad(), loop_dw);
  const double flops = 2 * real(y.count() * form.in * 9);
  for (const std::size_t back : {0u, 1u}) {
    const double each = seconds[back];
    rows.push_back({{"filters", form.name},
                    {"what", back == 0 ? "forward" : "backward"},
                    {"ms", 1e3 * each},
                    {"of peak", (back == 0 ? 1 : 2) * flops / each / peak.flops()},
                    {"06's loops, ms", 1e3 * seconds[2 + back]},
                    {"times as long", seconds[2 + back] / each}});
  }
}

// The classifier's filters, and those of its last block on larger images, but few.
Json filters(const Asked& asked) {
  const std::int64_t N = asked.images, C = asked.width, few = std::max<std::int64_t>(1, N / 32);
  Json rows = Json::array();
  on_ranks(asked, 1, [&](const Rank& rank) {
    for (const FilterForm& form : {FilterForm{"stem", N, 1, C, 28},
                                   {"blocks.0", N, C, C, 14},
                                   {"blocks.1", N, 2 * C, 2 * C, 7},
                                   {"blocks.2", N, 4 * C, 4 * C, 4},
                                   {"56 x 56", few, 4 * C, 4 * C, 56}})
      add_filters(asked, rank, form, rows);
  });
  return shown(fmt::format("Filters of 3 x 3 on {} images, as products and as loops", N),
               std::move(rows));
}

// ---- what only passes over memory ---------------------------------------------------------------

// Bytes for each of x that forward reads and writes, and backward, whose dy is y.
struct MemoryForm {
  std::string name;
  std::unique_ptr<Layer> layer;
  double forward, backward;
};

Json memory(const Asked& asked) {
  const Shape shape{32 * asked.images, asked.width, 28, 28};
  Json rows = Json::array();
  on_ranks(asked, 1, [&](const Rank& rank) {
    std::array<MemoryForm, 3> forms{
        {{"batch norm", std::make_unique<BatchNorm>(rank, "norm", shape[1], BatchNorm::Options{}),
          4, 5},  // x for its mean, its squares and y; x and dy for the sums, and for dx
         {"max pool", std::make_unique<MaxPool>(rank, "pool", 2), 1.25, 2.25},
         {"relu", std::make_unique<Relu>(rank, "relu"), 2, 2}}};
    ParameterStore store(rank.device, {{"norm", forms[0].layer->parameters()}}, {});
    store.initialize(1);
    const Tensor x = random_tensor(shape, "x", rank.device);
    std::array<Tensor, 3> y, dx;
    std::array<Saved, 3> saved;
    Works works;
    for (std::size_t i = 0; i < forms.size(); ++i) {
      works.emplace_back([&, i] { y[i] = forms[i].layer->forward(x.share(), saved[i], {}); });
      works.emplace_back([&, i] { dx[i] = forms[i].layer->backward(y[i].share(), saved[i], {}); });
    }
    std::vector<double> bandwidths;
    const std::vector<double> seconds = in_turns(asked.rounds, works, [&] {
      store.clear_grads();
      bandwidths.push_back(measure_triad_bandwidth(asked.threads));
    });
    const ChannelMoments normed = channel_moments(y[0]);
    check("variance of a normed channel", normed.squares[0] / normed.count, 1, 1e-4);
    // What comes back along y itself moves nothing: mean and spread are taken away again.
    check("gradient along y", std::sqrt(ops::sum_of_squares(dx[0]) / real(x.count())), 0, 1e-3);
    const float* const window = x.data<float>();
    check("largest of a window", y[1].data<float>()[0],
          std::max({window[0], window[1], window[28], window[29]}), 0);
    const double bytes = 4 * real(x.count());
    for (std::size_t i = 0; i < works.size(); ++i) {
      const MemoryForm& form = forms[i / 2];
      const double rate = (i % 2 == 0 ? form.forward : form.backward) * bytes / seconds[i];
      rows.push_back({{"layer", form.name},
                      {"what", i % 2 == 0 ? "forward" : "backward"},
                      {"ms", 1e3 * seconds[i]},
                      {"GB/s", 1e-9 * rate},
                      {"of bandwidth", rate / median(bandwidths)}});
    }
  });
  return shown(
      fmt::format("Layers without products, of {}, beside the machine's triad", shape.to_string()),
      std::move(rows));
}

// ---- statistics of all ranks --------------------------------------------------------------------

Json moments(const Asked& asked) {
  constexpr int kCalls = 20;  // of each, one after another
  Json rows = Json::array();
  on_ranks(asked, asked.ranks, [&](const Rank& rank) {
    for (const auto& [channels, side] : {std::pair{asked.width, 28}, {4 * asked.width, 4}}) {
      const Tensor all = random_tensor({asked.images, channels, side, side}, "x", rank.device);
      const Range mine = share_of(asked.images, rank.world.rank(), rank.world.size());
      Tensor x({mine.count(), channels, side, side}, DType::F32, rank.device);
      rank.device.copy(x, all.view().rows(mine.begin, mine.end));
      ChannelMoments own, merged;
      std::vector<double> sums(2 * index(channels));
      const Works works{[&] { own = channel_moments(x); },
                        [&] { merged = moments_of_all(rank.world, own); },
                        [&] { sums_of_all(rank.world, sums); }};
      Works many;
      for (const auto& work : works)
        many.emplace_back([&] {
          for (int call = 0; call < kCalls; ++call) work();
        });
      const std::vector<double> seconds =
          in_turns(asked.rounds, many, [&] { rank.world.barrier(); });
      const ChannelMoments whole = channel_moments(all);
      check("values of a channel", merged.count, whole.count, 0);
      check("mean on all ranks", merged.means[0], whole.means[0], 1e-10);
      check("squares on all ranks", merged.squares[0], whole.squares[0], 1e-10);
      if (rank.world.rank() == 0)
        rows.push_back({{"channels", channels},
                        {"values of each", static_cast<std::int64_t>(own.count)},
                        {"own moments, us", 1e6 * seconds[0] / kCalls},
                        {"those of all, us", 1e6 * seconds[1] / kCalls},
                        {"backward's sums, us", 1e6 * seconds[2] / kCalls}});
    }
  });
  return shown(fmt::format("Statistics of {} ranks, {} images together", asked.ranks, asked.images),
               std::move(rows));
}

// ---- steps --------------------------------------------------------------------------------------

double all_flops(const std::vector<LayerSize>& layers) {
  return std::accumulate(layers.begin(), layers.end(), 0.0,
                         [](double sum, const LayerSize& layer) { return sum + layer.flops; });
}

Json steps(const Asked& asked) {
  std::vector<std::pair<std::string, ClassifierConfig>> forms{
      {"batch norm", {}}, {"layer norm", {}}, {"no norm", {}}, {"4 experts", {.experts = 4}}};
  forms[1].second.norm = ImageNorm::Layer;
  forms[2].second.norm = ImageNorm::None;
  Json rows = Json::array();
  on_ranks(asked, 1, [&](const Rank& rank) {
    std::vector<std::unique_ptr<ClassifierStep>> all;
    Works works;
    for (auto& [name, config] : forms) {
      config.width = asked.width;
      all.push_back(std::make_unique<ClassifierStep>(rank, config, asked.images));
      works.emplace_back([&step = *all.back()] { step.run(); });
    }
    PeakEstimate peak;
    const std::vector<double> seconds = in_turns(
        asked.rounds, works, [&] { peak.add(measure_peak_slice(DType::F32, asked.threads)); });
    for (std::size_t i = 0; i < forms.size(); ++i) {
      const auto& [name, config] = forms[i];
      check(name + ": fall along the gradient", all[i]->fall(), 1, 0.1);
      const double flops = 3 * real(asked.images) * all_flops(layer_sizes(config));
      rows.push_back({{"classifier", name},
                      {"ms", 1e3 * seconds[i]},
                      {"images/s", real(asked.images) / seconds[i]},
                      {"of the first", seconds[i] / seconds[0]},
                      {"of peak", flops / seconds[i] / peak.flops()}});
    }
  });
  return shown(fmt::format("A step of {} images: forward, backward, update", asked.images),
               std::move(rows));
}

// ---- layers of a step ---------------------------------------------------------------------------

Json layers(const Asked& asked) {
  const ClassifierConfig config{.width = asked.width, .experts = 4};
  const std::vector<LayerSize> sizes = layer_sizes(config);
  std::vector<LayerSeconds> times;  // of all rounds together
  const int rounds = 2 * asked.rounds;
  PeakEstimate peak;
  on_ranks(asked, 1, [&](const Rank& rank) {
    ClassifierStep step(rank, config, asked.images);
    LayerTimer timer(rank, sizes.size());
    LayerHook* const hooks[] = {&timer};
    step.run();
    for (int round = 0; round < rounds; ++round) {
      peak.add(measure_peak_slice(DType::F32, asked.threads));
      step.run(hooks);
    }
    times = timer.seconds();
  });
  double all = 0;
  for (const LayerSeconds& layer : times) all += (layer.forward + layer.backward) / rounds;
  Json rows = Json::array();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const double seconds = (times[i].forward + times[i].backward) / rounds;
    rows.push_back({{"layer", sizes[i].name},
                    {"forward ms", 1e3 * times[i].forward / rounds},
                    {"backward ms", 1e3 * times[i].backward / rounds},
                    {"% of the time", 100 * seconds / all},
                    {"% of FLOPs", 100 * sizes[i].flops / all_flops(sizes)},
                    {"of peak", 3 * real(asked.images) * sizes[i].flops / seconds / peak.flops()}});
  }
  return shown(fmt::format("Layers of a step of {} images, 4 experts", asked.images),
               std::move(rows));
}

// ---- ranks --------------------------------------------------------------------------------------

Json ranks(const Asked& asked) {
  const ClassifierConfig config{.width = asked.width};
  double expected = 0;
  on_ranks(asked, 1,
           [&](const Rank& rank) { expected = ClassifierStep(rank, config, asked.images).run(); });
  Json rows = Json::array();
  on_ranks(asked, asked.ranks, [&](const Rank& rank) {
    ClassifierStep step(rank, config, asked.images);
    std::vector<ClassifierStep::Seconds> found;
    for (int round = -1; round < asked.rounds; ++round) {
      rank.world.barrier();
      const double loss = sum_of_all(rank.world, step.run());
      check("loss of all ranks", loss, expected, 1e-4);
      if (round >= 0) found.push_back(step.seconds());
    }
    // The step that took a median time, so that its parts add up to it.
    std::sort(found.begin(), found.end(),
              [](const auto& a, const auto& b) { return a.all() < b.all(); });
    const ClassifierStep::Seconds& middle = found[found.size() / 2];
    if (rank.world.rank() == 0)
      rows.push_back({{"ranks", asked.ranks},
                      {"ms", 1e3 * middle.all()},
                      {"layers ms", 1e3 * middle.layers},
                      {"gradients ms", 1e3 * middle.gradients},
                      {"update ms", 1e3 * middle.update},
                      {"images/s", real(asked.images) / middle.all()}});
  });
  return shown(fmt::format("A step of {} images on {} ranks, the norm over all of them",
                           asked.images, asked.ranks),
               std::move(rows));
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  using namespace aisc;
  constexpr std::pair<const char*, Json (*)(const Asked&)> kParts[] = {
      {"filters", filters}, {"memory", memory}, {"moments", moments},
      {"steps", steps},     {"layers", layers}, {"ranks", ranks}};
  Asked asked;
  return measuring_program(
      argc, argv, "What a network that sees costs on this machine: layers, norms, steps.",
      [&](CommandLine& line) {
        line.text("--part", asked.part, "what is measured",
                  {"all", "filters", "memory", "moments", "steps", "layers", "ranks"});
        line.number("--rounds", asked.rounds, 1, 10000, "in turns, of which the median counts");
        line.number("--threads", asked.threads, 1, 1024,
                    "of all ranks; all that there are cores for");
        line.number("--ranks", asked.ranks, 1, 1024, "ranks, of the parts moments and ranks");
        line.number("--images", asked.images, 2, 65536, "of a step; 32 times as many: memory");
        line.number("--width", asked.width, 1, 1024, "channels of the first layer");
      },
      [&] {
        if (asked.images < asked.ranks)
          fail(fmt::format("--images {}: expected --ranks {} or more", asked.images, asked.ranks));
        const PoliteWaits waits(std::max(asked.threads, asked.ranks));
        Json json;
        for (const auto& [name, measure] : kParts)
          if (asked.part == "all" || asked.part == name) json[name] = measure(asked);
        return json;
      });
}
