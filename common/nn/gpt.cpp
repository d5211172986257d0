#include "common/nn/gpt.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <utility>

#include "common/core/error.h"
#include "common/nn/attention.h"
#include "common/nn/block.h"
#include "common/nn/cross_entropy.h"
#include "common/nn/dropout.h"
#include "common/nn/embedding.h"
#include "common/nn/layer_norm.h"
#include "common/nn/linear.h"
#include "common/nn/sequence.h"

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

double GptConfig::residual_stddev() const {
  return 0.02 / std::sqrt(2.0 * static_cast<double>(layers));
}

GptParts gpt2_parts() {
  using std::make_unique;
  using Wanted = const GptParts::Wanted&;
  GptParts gpt2;
  gpt2.norm = [](Wanted w) { return make_unique<LayerNorm>(w.rank, w.name, w.config.width); };
  gpt2.core = [](Wanted w) { return make_unique<CausalCore>(w.rank, w.name, w.config.heads); };
  gpt2.attention = [](Wanted w) {
    const GptConfig& c = w.config;
    return in_sequence(
        w.rank, w.name, make_unique<Linear>(w.rank, w.name + ".qkv", c.width, 3 * c.width),
        w.parts.core(w),
        make_unique<Linear>(w.rank, w.name + ".project", c.width, c.width, c.residual_stddev()),
        make_unique<Dropout>(w.rank, w.name + ".dropout", c.dropout, c.seed));
  };
  gpt2.mlp = [](Wanted w) {
    const GptConfig& c = w.config;
    const std::int64_t C = c.width, hidden = 4 * C;
    return in_sequence(
        w.rank, w.name,
        make_unique<Linear>(w.rank, w.name + ".fc", C, hidden, 0.02, Linear::Gelu::Behind),
        make_unique<Linear>(w.rank, w.name + ".project", hidden, C, c.residual_stddev(),
                            Linear::Gelu::Before),
        make_unique<Dropout>(w.rank, w.name + ".dropout", c.dropout, c.seed));
  };
  gpt2.block = [](Wanted w) {
    const auto part = [&](const char* name) {
      return GptParts::Wanted{w.rank, w.name + name, w.config, w.parts};
    };
    return make_unique<Block>(w.rank, w.name, w.parts.norm(part(".norm1")),
                              w.parts.attention(part(".attention")), w.parts.norm(part(".norm2")),
                              w.parts.mlp(part(".mlp")));
  };
  return gpt2;
}

Model make_gpt(const Rank& rank, const GptConfig& config, const GptParts& parts,
               BlockRange blocks) {
  config.validate();
  if (blocks.end == -1) blocks.end = config.layers;
  if (blocks.begin < 0 || blocks.begin > blocks.end || blocks.end > config.layers)
    fail(fmt::format("gpt: blocks {} to {} of {}", blocks.begin, blocks.end, config.layers));
  Model model;
  const auto table = [&] {
    return token_table(config.vocabulary, config.table_rows(), config.width);
  };
  Parameter* tied = nullptr;
  if (blocks.begin == 0) {
    auto embedding = std::make_unique<Embedding>(rank, table(), config.dtype);
    tied = &embedding->table();
    model.layers.push_back(std::move(embedding));
    model.layers.push_back(std::make_unique<Positions>(rank, config.context, config.width));
    model.layers.push_back(std::make_unique<Dropout>(rank, "dropout", config.dropout, config.seed));
  }
  std::vector<std::unique_ptr<Layer>> group;
  for (std::int64_t i = blocks.begin; i < blocks.end; ++i) {
    group.push_back(parts.block({rank, fmt::format("blocks.{}", i), config, parts}));
    if (parts.recompute_blocks == 0) {
      model.layers.push_back(std::move(group.back()));
      group.clear();
    } else if (i + 1 == blocks.end || std::ssize(group) == parts.recompute_blocks) {
      const std::string name = group.front()->name();
      model.layers.push_back(std::make_unique<Recomputed>(
          rank, std::make_unique<Sequence>(rank, name, std::exchange(group, {}))));
    }
  }
  if (blocks.end == config.layers) {
    model.layers.push_back(parts.norm({rank, "norm", config, parts}));
    model.layers.push_back(tied ? std::make_unique<TiedHead>(rank, *tied)
                                : std::make_unique<TiedHead>(rank, table()));
    model.loss = std::make_unique<CrossEntropy>(rank, config.vocabulary);
  }
  return model;
}

}  // namespace aisc
