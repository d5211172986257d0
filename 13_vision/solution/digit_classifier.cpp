#include "13_vision/digit_classifier.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "13_vision/of_type.h"
#include "13_vision/pooling.h"
#include "common/core/error.h"
#include "common/nn/cross_entropy.h"
#include "common/nn/linear.h"

namespace aisc {

Model make_digit_classifier(const Rank& rank, const ClassifierConfig& c, Communicator& batch) {
  ImageSize images = c.images;
  if (images.height < 2 || images.width < 2)
    fail(fmt::format("digit classifier: images of {} x {}, expected 2 x 2 or more", images.height,
                     images.width));
  if (std::min({images.channels, c.classes, c.width, c.blocks}) < 1)
    fail(
        fmt::format("digit classifier: {} channels, {} classes, width {}, {} blocks, expected 1 or "
                    "more of each",
                    images.channels, c.classes, c.width, c.blocks));
  const NormOfBatch norm{c.norm, batch};
  Model model;
  auto& layers = model.layers;
  layers.push_back(make_filters(rank, "stem", images, c.width, 3, 1, norm, Ends::Relu));
  layers.push_back(std::make_unique<MaxPool>(rank, "pool", 2));
  images.height /= 2, images.width /= 2;
  for (std::int64_t b = 0; b < c.blocks; ++b)
    layers.push_back(std::make_unique<ResidualBlock>(rank, fmt::format("blocks.{}", b), images,
                                                     b == 0 ? c.width : 2 * images.channels,
                                                     b == 0 ? 1 : 2, norm));
  layers.push_back(std::make_unique<GlobalAveragePool>(rank, "mean"));
  layers.push_back(std::make_unique<Linear>(rank, "head", images.channels, c.classes,
                                            1 / std::sqrt(static_cast<double>(images.channels))));
  model.loss = std::make_unique<CrossEntropy>(rank, c.classes);
  return model;
}

std::int64_t count_right(ConstView logits, ConstView labels) {
  const std::int64_t N = labels.count();
  if (logits.shape().rank() != 2 || logits.shape()[0] != N)
    fail(fmt::format("count_right: logits are {}, expected ({}, classes)",
                     logits.shape().to_string(), N));
  std::int64_t right = 0;
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
  return right;
}

}  // namespace aisc
