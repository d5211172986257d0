#include "common/nn/gpt.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

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
  add("", std::move(embedding));  // the table and the positions are units each
  add("", std::make_unique<Dropout>(rank, "dropout", config.dropout, config.seed));
  // Projections that end in the residual stream start smaller, so that its variance does not grow
  // with the number of layers: 2 L of them add up.
  const double residual_stddev = 0.02 / std::sqrt(2.0 * static_cast<double>(config.layers));
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string name = fmt::format("blocks.{}", i);
    add(name, std::make_unique<Block>(rank, name,
                                      Block::Options{.width = config.width,
                                                     .heads = config.heads,
                                                     .residual_stddev = residual_stddev,
                                                     .dropout = config.dropout,
                                                     .seed = config.seed}));
  }
  add("norm", std::make_unique<LayerNorm>(rank, "norm", config.width));
  add("", std::make_unique<TiedHead>(rank, embedding_->table()));
}

void Gpt::add(std::string unit, std::unique_ptr<Layer> layer) {
  unit_names_.push_back(std::move(unit));
  layers_.push_back(std::move(layer));
}

std::vector<Unit> Gpt::units() const {
  std::vector<Unit> units{{"wte", {&embedding_->table()}}, {"wpe", {&embedding_->positions()}}};
  for (std::size_t i = 0; i < layers_.size(); ++i)
    if (!unit_names_[i].empty()) units.push_back({unit_names_[i], layers_[i]->parameters()});
  return units;
}

}  // namespace aisc
