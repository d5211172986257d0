// Yours to write; from 13_vision/solution/classifier_stages.cpp (stub ad1ef0b12d68).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
#include "13_vision/classifier_stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "common/core/error.h"
#include "common/core/range.h"

namespace aisc {
namespace {

using Cut = std::vector<LayerRange>;

// Adds all cuts that begin with `begun` to `cuts`, in lexicographic order of where stages begin:
// the next stage ends so early that each of those behind it has a layer.
void add_cuts(const Cut& begun, std::size_t layers, std::size_t stages, std::vector<Cut>& cuts) {
  const std::size_t begin = begun.empty() ? 0 : begun.back().end, behind = stages - begun.size();
  Cut cut = begun;
  if (behind == 1) {
    cut.push_back({begin, layers});
    cuts.push_back(std::move(cut));
    return;
  }
  cut.emplace_back();
  for (std::size_t end = begin + 1; end + behind <= layers + 1; ++end) {
    cut.back() = {begin, end};
    add_cuts(cut, layers, stages, cuts);
  }
}

// What a cut means: see best_cut().
struct CutCost {
  double slowest = 0;         // FLOPs of the stage that has the most
  std::int64_t elements = 0;  // handed over, of an image
  bool operator<(const CutCost& other) const {
    return std::tie(slowest, elements) < std::tie(other.slowest, other.elements);
  }
};

CutCost cost_of(std::span<const LayerSize> layers, const Cut& cut) {
  CutCost cost;
  // LAB 13.2: stages
  // A stage has layers stage.begin .. stage.end. What it is handed is the input of one of them: of
  // which? And which stage is handed nothing?
  throw NotImplemented("lab 13.2: stages", __FILE__, __LINE__);
  // END LAB 13.2
  return cost;
}

}  // namespace

std::vector<LayerSize> layer_sizes(const ClassifierConfig& c) {
  require_classifier(c);
  std::vector<LayerSize> layers;
  ImageSize image = c.images;
  const auto shape = [&] { return Shape{image.channels, image.height, image.width}; };
  const auto filters = [](const ImageSize& in, const ImageSize& out, std::int64_t size) {
    return 2.0 * static_cast<double>(in.channels * size * size * out.count());
  };
  const auto add = [&](const std::string& name, double flops) {
    layers.push_back({name, shape(), flops});
  };
  const ImageSize stem{c.width, image.height, image.width};
  add("stem", filters(image, stem, 3));
  image = stem;
  add("pool", static_cast<double>(image.count()));
  image.height /= 2, image.width /= 2;
  for (std::int64_t block = 0; block < c.blocks; ++block) {
    ImageSize out = image;
    if (block > 0) out = {2 * image.channels, (image.height + 1) / 2, (image.width + 1) / 2};
    add(fmt::format("blocks.{}", block),
        filters(image, out, 3) + filters(out, out, 3) + (block > 0 ? filters(image, out, 1) : 0));
    image = out;
  }
  const double places = static_cast<double>(image.height * image.width),
               C = static_cast<double>(image.channels);
  // Two products of each expert that is chosen, C to 2 C and back, and the router's.
  const auto E = static_cast<double>(c.experts), chosen = std::min(2.0, E);
  if (c.experts > 0) add("experts", places * (8 * C * C * chosen + 2 * C * E));
  add("mean", static_cast<double>(image.count()));
  layers.push_back({"head", Shape{image.channels}, 2 * C * static_cast<double>(c.classes)});
  return layers;
}

std::vector<LayerRange> best_cut(std::span<const LayerSize> layers, int stages) {
  if (stages < 1 || stages > std::ssize(layers))
    fail(fmt::format("classifier: {} stages of {} layers, expected 1 to {}", stages, layers.size(),
                     layers.size()));
  std::vector<Cut> cuts;
  add_cuts({}, layers.size(), index(stages), cuts);
  return *std::min_element(cuts.begin(), cuts.end(), [&](const Cut& a, const Cut& b) {
    return cost_of(layers, a) < cost_of(layers, b);
  });
}

Shape stage_input(std::span<const LayerSize> layers, const LayerRange& stage, std::int64_t images) {
  // LAB 13.2: stages
  // `input` is of one image: Shape{a, b}, Shape{a, b, c, d} are shapes of two and of four sizes.
  throw NotImplemented("lab 13.2: stages", __FILE__, __LINE__);
  // END LAB 13.2
}

Model stage_of(Model whole, const LayerRange& stage) {
  // LAB 13.2: stages
  // A layer is a unique_ptr: it moves. Which stage computes the loss, and what has the model of
  // the others in its place? One stage of this model: all of its layers, counted from 0.
  throw NotImplemented("lab 13.2: stages", __FILE__, __LINE__);
  // END LAB 13.2
}

}  // namespace aisc
