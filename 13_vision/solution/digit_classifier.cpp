#include "13_vision/digit_classifier.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "13_vision/expert_head.h"
#include "13_vision/of_type.h"
#include "13_vision/pooling.h"
#include "common/core/error.h"
#include "common/nn/cross_entropy.h"
#include "common/nn/linear.h"

namespace aisc {

namespace {

// The best two of them for each place, with room for twice the even share: of the few places of an
// image many look alike.
GptExperts experts_of(const ClassifierConfig& c) {
  return {.count = c.experts, .router = c.experts > 1 ? "top2" : "switch", .capacity = 2};
}

}  // namespace

void require_classifier(const ClassifierConfig& c) {
  if (c.images.height < 2 || c.images.width < 2)
    fail(fmt::format("digit classifier: images of {} x {}, expected 2 x 2 or more", c.images.height,
                     c.images.width));
  if (std::min({c.images.channels, c.classes, c.width, c.blocks}) < 1)
    fail(
        fmt::format("digit classifier: {} channels, {} classes, width {}, {} blocks, expected 1 or "
                    "more of each",
                    c.images.channels, c.classes, c.width, c.blocks));
  if (c.experts < 0)
    fail(fmt::format("digit classifier: {} experts, expected 0 or more", c.experts));
}

Model make_digit_classifier(const Rank& rank, const ClassifierConfig& c, Communicator& batch) {
  require_classifier(c);
  ImageSize images = c.images;
  const NormOfBatch norm{c.norm, batch};
  Model model;
  auto& layers = model.layers;
  // LAB 13.1: the classifier
  // > The layers, in the order that digit_classifier.h says; their names are "stem", "pool",
  // > "blocks.0" ..., "experts", "mean", "head". make_filters and ResidualBlock leave in `images`
  // > the sizes of what they make; pooling does not know of it.
  layers.push_back(make_filters(rank, "stem", images, c.width, 3, 1, norm, Ends::Relu));
  layers.push_back(std::make_unique<MaxPool>(rank, "pool", 2));
  images.height /= 2, images.width /= 2;
  for (std::int64_t b = 0; b < c.blocks; ++b) {
    const std::string name = fmt::format("blocks.{}", b);
    const std::int64_t out = b == 0 ? c.width : 2 * images.channels, stride = b == 0 ? 1 : 2;
    layers.push_back(std::make_unique<ResidualBlock>(rank, name, images, out, stride, norm));
  }
  const std::int64_t C = images.channels;
  if (c.experts > 0)
    layers.push_back(std::make_unique<ExpertHead>(rank, "experts", C, experts_of(c), batch));
  layers.push_back(std::make_unique<GlobalAveragePool>(rank, "mean"));
  const double spread = 1 / std::sqrt(static_cast<double>(C));
  layers.push_back(std::make_unique<Linear>(rank, "head", C, c.classes, spread));
  // END LAB 13.1
  model.loss = std::make_unique<CrossEntropy>(rank, c.classes);
  return model;
}

std::int64_t count_right(ConstView logits, ConstView labels) {
  const std::int64_t N = labels.count();
  if (logits.shape().rank() != 2 || logits.shape()[0] != N)
    fail(fmt::format("count_right: logits are {}, expected ({}, classes)",
                     logits.shape().to_string(), N));
  std::int64_t right = 0;
  // LAB 13.1: the classifier
  // > of_type(dtype, [&](auto type) { using T = decltype(type); ... }) gives the numbers' type.
  of_type(logits.dtype(), [&](auto type) {
    using T = decltype(type);
    const std::int64_t V = logits.shape()[1];
    for (std::int64_t n = 0; n < N; ++n) {
      const T* const row = logits.data<T>() + n * V;
      const bool numbers = std::all_of(row, row + V, [](T x) { return !std::isnan(x); });
      if (numbers && std::max_element(row, row + V) - row == labels.data<std::int32_t>()[n])
        ++right;
    }
  });
  // END LAB 13.1
  return right;
}

}  // namespace aisc
