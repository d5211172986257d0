#include "common/nn/gpt.h"

#include <fmt/format.h>

#include <cmath>

#include "common/core/error.h"
#include "common/nn/block.h"

namespace aisc {

std::int64_t GptConfig::table_rows() const {
  return (vocabulary + vocabulary_multiple - 1) / vocabulary_multiple * vocabulary_multiple;
}

double GptConfig::flops_per_token(std::int64_t tokens) const {
  const auto L = static_cast<double>(layers), C = static_cast<double>(width);
  const auto V = static_cast<double>(table_rows()), T = static_cast<double>(tokens);
  return 6 * (V * C + 12 * L * C * C) + 12 * L * C * T;
}

void GptConfig::validate() const {
  const auto positive = [](const char* what, std::int64_t value) {
    if (value < 1) fail(fmt::format("gpt: {} is {}, expected 1 or more", what, value));
  };
  positive("layers", layers);
  positive("heads", heads);
  positive("width", width);
  positive("context", context);
  positive("vocabulary", vocabulary);
  positive("vocabulary_multiple", vocabulary_multiple);
  if (width % heads != 0)
    fail(
        fmt::format("gpt: width {} is not a multiple of heads {}: each head takes width / heads "
                    "columns",
                    width, heads));
  if (!(dropout >= 0 && dropout < 1))
    fail(fmt::format("gpt: dropout is {}, expected 0 <= dropout < 1", dropout));
  if (!is_floating(dtype)) fail(fmt::format("gpt: {} is not a floating type", name_of(dtype)));
}

Gpt::Gpt(const Rank& rank, const GptConfig& config)
    : config_(config), loss_(rank, config.vocabulary) {
  config.validate();
  auto embedding = std::make_unique<Embedding>(rank, "", config.vocabulary, config.table_rows(),
                                               config.context, config.width, config.dtype);
  embedding_ = embedding.get();
  layers_.push_back(std::move(embedding));
  layers_.push_back(std::make_unique<Dropout>(rank, "dropout", config.dropout, config.seed));
  // Projections that end in the residual stream start smaller, so that its variance does not grow
  // with the number of layers: 2 L of them add up.
  const double residual_stddev = 0.02 / std::sqrt(2.0 * static_cast<double>(config.layers));
  for (std::int64_t i = 0; i < config.layers; ++i)
    layers_.push_back(std::make_unique<Block>(rank, fmt::format("blocks.{}", i),
                                              Block::Options{.width = config.width,
                                                             .heads = config.heads,
                                                             .residual_stddev = residual_stddev,
                                                             .dropout = config.dropout,
                                                             .seed = config.seed}));
  layers_.push_back(std::make_unique<LayerNorm>(rank, "norm", config.width));
  layers_.push_back(std::make_unique<TiedHead>(rank, embedding_->table()));
}

std::vector<Unit> Gpt::units() const {
  std::vector<Unit> units{{"wte", {&embedding_->table()}}, {"wpe", {&embedding_->positions()}}};
  for (std::size_t i = 1; i < layers_.size(); ++i) {
    std::vector<Parameter*> parameters = layers_[i]->parameters();
    if (!parameters.empty()) {
      const std::string& first = parameters.front()->name;  // "blocks.3.norm1.weight"
      const std::size_t dot = first.find('.', first.rfind("blocks.", 0) == 0 ? 7 : 0);
      units.push_back({first.substr(0, dot), std::move(parameters)});
    }
  }
  return units;
}

}  // namespace aisc
