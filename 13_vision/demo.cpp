// What this module is about, in numbers that a person can check: batch norm of four images on two
// ranks, where a network is cut, what a rank's memory holds, an image as tokens, and which experts
// its places choose.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "05_pipeline/partition.h"
#include "13_vision/channel_moments.h"
#include "13_vision/classifier_stages.h"
#include "13_vision/classifier_step.h"
#include "13_vision/drawn_digits.h"
#include "13_vision/engine_choices.h"
#include "13_vision/expert_head.h"
#include "13_vision/image_set.h"
#include "common/comm/launch.h"
#include "common/core/flags/program.h"
#include "common/core/range.h"
#include "common/nn/parameter_store.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

Json shown(const std::string& text, Json rows) {
  fmt::print("{}\n\n", text);
  print_table(rows);
  return rows;
}

std::string spaced(const auto& numbers) { return fmt::format("{}", fmt::join(numbers, " ")); }

// ---- batch norm on two ranks --------------------------------------------------------------------

const std::vector<double> kImages{1, 3, 5, 7};  // of one channel and one pixel

Tensor images_of_rank(const Rank& rank, const Range& mine) {
  Tensor x({mine.count(), 1, 1, 1}, DType::F64, rank.device);
  std::copy_n(kImages.begin() + mine.begin, mine.count(), x.data<double>());
  return x;
}

// What the norm makes of the four images, each rank of its share.
std::vector<double> normed(int ranks, ImageNorm norm) {
  std::vector<double> y(kImages.size());
  launch({.ranks = ranks, .bind = false}, [&](const Rank& rank) {
    const Range mine = share_of(std::ssize(y), rank.world.rank(), ranks);
    const auto layer = make_image_norm(rank, "norm", norm, {1, 1, 1}, rank.world);
    ParameterStore store(rank.device, {{"norm", layer->parameters()}},
                         {.value_dtype = DType::F64, .grad_dtype = DType::F64});
    store.initialize(1);
    Saved saved;
    const Tensor out = layer->forward(images_of_rank(rank, mine), saved, {});
    std::copy_n(out.data<double>(), mine.count(), y.begin() + mine.begin);
  });
  return y;
}

Json norms() {
  Json rows = Json::array();
  for (const auto& [ranks, norm, said] : {std::tuple{1, ImageNorm::Batch, "one rank"},
                                          {2, ImageNorm::Batch, "2: own"},
                                          {2, ImageNorm::SyncBatch, "2: of all"}}) {
    Json row{{"statistics", said}};
    const std::vector<double> y = normed(ranks, norm);
    for (std::size_t i = 0; i < y.size(); ++i)
      row[fmt::format("{:g} becomes", kImages[i])] = std::round(1e4 * y[i]) / 1e4;
    rows.push_back(row);
  }
  return shown("Batch norm of the images 1 3 on rank 0 and 5 7 on rank 1", std::move(rows));
}

Json moments() {
  Json rows = Json::array();
  const auto add = [&](const std::string& whose, const ChannelMoments& m) {
    rows.push_back({{"moments of", whose},
                    {"n", m.count},
                    {"mean", m.means[0]},
                    {"squares", m.squares[0]},
                    {"variance", m.squares[0] / m.count}});
  };
  std::vector<ChannelMoments> own(2), all(2);
  launch({.ranks = 2, .bind = false}, [&](const Rank& rank) {
    const std::int64_t r = rank.world.rank();
    own[index(r)] = channel_moments(images_of_rank(rank, share_of(std::ssize(kImages), r, 2)));
    all[index(r)] = moments_of_all(rank.world, own[index(r)]);
  });
  for (const std::size_t r : {0u, 1u}) add(fmt::format("rank {}", r), own[r]);
  for (const std::size_t r : {0u, 1u}) add(fmt::format("all, on {}", r), all[r]);
  return shown("What the ranks send one another, and what each makes of it", std::move(rows));
}

// ---- stages -------------------------------------------------------------------------------------

const ClassifierConfig kClassifier;

Json layers() {
  Json rows = Json::array();
  double all = 0;
  const std::vector<LayerSize> sizes = layer_sizes(kClassifier);
  for (const LayerSize& layer : sizes) all += layer.flops;
  for (const LayerSize& layer : sizes)
    rows.push_back({{"layer", layer.name},
                    {"takes of an image", layer.input.to_string()},
                    {"elements", layer.input.count()},
                    {"FLOPs", static_cast<std::int64_t>(layer.flops)},
                    {"% of all", 100 * layer.flops / all}});
  return shown("The layers of the classifier, of one image, forward", std::move(rows));
}

Json cuts() {
  const std::vector<LayerSize> sizes = layer_sizes(kClassifier);
  std::vector<double> flops;
  double all = 0;
  for (const LayerSize& layer : sizes) {
    flops.push_back(layer.flops);
    all += layer.flops;
  }
  Json rows = Json::array();
  const auto add = [&](const char* by, const std::vector<std::int64_t>& first) {
    double slowest = 0;
    std::int64_t handed = 0;
    for (std::size_t s = 0; s < first.size(); ++s) {
      const auto end = s + 1 < first.size() ? flops.begin() + first[s + 1] : flops.end();
      slowest = std::max(slowest, std::accumulate(flops.begin() + first[s], end, 0.0));
      if (s > 0) handed += sizes[index(first[s])].input.count();
    }
    rows.push_back({{"stages", first.size()},
                    {"cut by", by},
                    {"begin with", spaced(first)},
                    {"slowest has %", 100 * slowest / all},
                    {"elements handed over", handed}});
  };
  for (const int stages : {2, 4}) {
    std::vector<std::int64_t> first;
    for (const LayerRange& stage : best_cut(sizes, stages))
      first.push_back(static_cast<std::int64_t>(stage.begin));
    add("best_cut", first);
    add("05's cut", cut(flops, stages));
  }
  return shown("Cut into stages; layers are counted from 0", std::move(rows));
}

// ---- memory -------------------------------------------------------------------------------------

Json memory(const Rank& rank) {
  constexpr std::int64_t kBatch = 64;
  const Model model = make_digit_classifier(rank, kClassifier, rank.world);
  ParameterStore store(rank.device, make_units(model), {.gradients = false});
  store.initialize(1);
  const std::int64_t parameters = store.parameter_count();
  const std::vector<std::int64_t> two{0, 1};
  const double image =
      saved_bytes(model, draw_image_set(1, 0, 2).batch(two, DType::F32, rank.device).images);
  Json states = Json::array(), batches = Json::array();
  for (const int ranks : {1, 2, 4})
    for (const int zero : {0, 1, 2, 3}) {
      const StateBytes bytes = state_bytes(parameters, zero, ranks);
      states.push_back({{"ranks", ranks},
                        {"zero", zero},
                        {"weights kB", bytes.weights / 1e3},
                        {"gradients kB", bytes.gradients / 1e3},
                        {"moments kB", bytes.moments / 1e3},
                        {"all kB", bytes.all() / 1e3},
                        {"as of images", bytes.all() / image}});
    }
  states = shown(fmt::format("State of {} weights, of a rank; an image's activations are {:.1f} kB",
                             parameters, image / 1e3),
                 std::move(states));
  for (const EngineChoice& choice : engine_choices({.batch = kBatch,
                                    .ranks = 2,
                                    .parameters = parameters,
                                    .image_bytes = image,
                                    .limit = 1e9})) {
    if (choice.zero != 0 && choice.zero != 3) continue;
    const double state = state_bytes(parameters, choice.zero, 2).all();
    batches.push_back({{"zero", choice.zero},
                       {"micro-batches", choice.micro_batches},
                       {"state kB", state / 1e3},
                       {"activations kB", (choice.bytes - state) / 1e3},
                       {"all kB", choice.bytes / 1e3}});
  }
  return {{"parameters", parameters},
          {"image_bytes", image},
          {"states", states},
          {"batches", shown(fmt::format("With its part of {} images, on two ranks", kBatch),
                            std::move(batches))}};
}

// ---- tokens, digits, experts --------------------------------------------------------------------

Json tokens(const Rank& rank) {
  Tensor image({1, 2, 2, 2}, DType::F64, rank.device);
  const std::vector<double> numbers{1, 2, 3, 4, 10, 20, 30, 40};
  std::copy(numbers.begin(), numbers.end(), image.values<double>().begin());
  const Tensor found = tokens_of(image);  // (1, 4, 2)
  Json rows = Json::array();
  for (std::int64_t p = 0; p < 4; ++p)
    rows.push_back({{"place", fmt::format("({}, {})", p / 2, p % 2)},
                    {"token", spaced(found.values<double>().subspan(index(2 * p), 2))}});
  return shown("Tokens of an image with the channels 1 2 / 3 4 and 10 20 / 30 40", std::move(rows));
}

// The first image of each digit; printed are means of 2 x 2 pixels.
Json digits() {
  std::vector<std::vector<int>> images(10);
  std::vector<std::uint8_t> pixels(index(kDigitPixels));
  for (std::uint64_t i = 0; i < 200; ++i)
    if (std::vector<int>& image = images[index(draw_digit(1, i, pixels))]; image.empty())
      image.assign(pixels.begin(), pixels.end());
  fmt::print("Digits that the course draws, each the first of its kind\n\n");
  constexpr std::string_view kInk = "  .:-=+*#%@";
  for (const std::size_t first : {0u, 5u})
    for (std::int64_t y = 0; y < kDigitSide; y += 2) {
      std::string line;
      for (std::size_t digit = first; digit < first + 5; ++digit, line += "  ")
        for (std::int64_t x = 0; x < kDigitSide; x += 2) {
          const int* const at = &images[digit][index(y * kDigitSide + x)];
          const int mean = (at[0] + at[1] + at[kDigitSide] + at[kDigitSide + 1]) / 4;
          line += kInk[index(mean) * kInk.size() / 256];
        }
      fmt::print("{}\n", line.substr(0, line.find_last_not_of(' ') + 1));
    }
  fmt::print("\n");
  return images;
}

Json experts(const Rank& rank) {
  constexpr std::int64_t kExperts = 8, kCount = 64;
  ClassifierStep step(rank, {.experts = kExperts}, kCount);
  rank.trace.record(true);
  step.run();
  const std::vector<std::int64_t> load = expert_load(rank.trace, kExperts, rank.world);
  rank.trace.record(false);
  const ExtraLoss& routed = step.extra();
  Json rows = Json::array();
  for (std::size_t e = 0; e < load.size(); ++e)
    rows.push_back({{"expert", e},
                    {"choices", load[e]},
                    {"% of all", 100 * static_cast<double>(load[e]) / routed.choices}});
  rows.push_back({{"expert", "none had room"},
                  {"choices", static_cast<std::int64_t>(routed.dropped)},
                  {"% of all", 100 * routed.dropped / routed.choices}});
  return shown(fmt::format("Where the {:.0f} choices of {} images' places go, two each, of a head "
                           "that has learnt nothing",
                           routed.choices, kCount),
               std::move(rows));
}

Json run() {
  Json json{{"norms", norms()}, {"moments", moments()}, {"layers", layers()}, {"cuts", cuts()}};
  launch({.ranks = 1, .bind = false}, [&](const Rank& rank) {
    json["memory"] = memory(rank);
    json["tokens"] = tokens(rank);
    json["digits"] = digits();
    json["experts"] = experts(rank);
  });
  return json;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::measuring_program(
      argc, argv, "A network that sees, in numbers: norms, stages, memory, tokens and experts.",
      [](aisc::CommandLine&) {}, aisc::run);
}
