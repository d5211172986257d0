#include "common/nn/gpt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "common/core/error.h"
#include "common/nn/block.h"
#include "common/nn/cross_entropy.h"
#include "common/nn/embedding.h"
#include "common/nn/layer_norm.h"
#include "common/nn/linear.h"
#include "common/nn/sequence.h"

namespace aisc {

std::int64_t GptConfig::table_rows() const {
  return (vocabulary + vocabulary_multiple - 1) / vocabulary_multiple * vocabulary_multiple;
}

double GptExperts::chosen() const {
  const auto all = static_cast<double>(count);
  if (router == "expert-choice") return capacity > 0 ? std::min(capacity, all) : all;
  return router == "switch" ? 1 : 2;
}

double GptConfig::flops_per_token(std::int64_t tokens) const {
  const auto L = static_cast<double>(layers), C = static_cast<double>(width);
  const auto V = static_cast<double>(table_rows()), T = static_cast<double>(tokens);
  return 6 * (V * C + block_weights_per_token()) + 12 * L * C * T;
}

double GptConfig::block_weights_per_token() const {
  const auto L = static_cast<double>(layers), C = static_cast<double>(width);
  const double dense = 12 * L * C * C;
  if (experts.count == 0) return dense;
  const auto with_experts = static_cast<double>(layers / experts.every);
  const double mlps = experts.chosen() + (experts.shared ? 1 : 0);
  return dense + with_experts * ((mlps - 1) * 8 * C * C + static_cast<double>(experts.count) * C);
}

namespace {

void validate_experts(const GptExperts& experts, std::int64_t layers) {
  if (experts.count < 0)
    fail(fmt::format("gpt: experts are {}, expected 0 or more", experts.count));
  if (experts.count == 0) return;
  if (experts.every < 1 || experts.every > layers)
    fail(fmt::format(
        "gpt: experts in one of every {} blocks, expected 1 to {}, the blocks there are",
        experts.every, layers));
  if (static_cast<double>(experts.count) < experts.chosen())
    fail(fmt::format("gpt: experts are {}, expected {} or more: router {} sends a token to as many",
                     experts.count, experts.chosen(), experts.router));
  const std::pair<const char*, double> factors[] = {
      {"capacity", experts.capacity}, {"balance", experts.balance}, {"z-loss", experts.z_loss}};
  for (const auto& [what, value] : factors)
    if (!(value >= 0) || !std::isfinite(value))
      fail(fmt::format("gpt: the experts' {} is {}, expected 0 or more", what, value));
}

}  // namespace

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
  if (encoder_blocks < 0 || encoder_blocks > layers)
    fail(fmt::format("gpt: {} encoder blocks of {}, expected 0 to all", encoder_blocks, layers));
  if (width % heads != 0)
    fail(
        fmt::format("gpt: width {} is not a multiple of heads {}: each head takes width / heads "
                    "columns",
                    width, heads));
  if (!(dropout >= 0 && dropout < 1))
    fail(fmt::format("gpt: dropout is {}, expected 0 <= dropout < 1", dropout));
  if (!is_floating(dtype)) fail(fmt::format("gpt: {} is not a floating type", name_of(dtype)));
  validate_experts(experts, layers);
}

double GptConfig::residual_stddev() const {
  return 0.02 / std::sqrt(2.0 * static_cast<double>(layers));
}

GptParts gpt2_parts() {
  using std::make_unique;
  using Wanted = const GptParts::Wanted&;
  GptParts gpt2;
  gpt2.norm = [](Wanted w) { return make_unique<LayerNorm>(w.rank, w.name, w.config.width); };
  gpt2.core = [](Wanted w) {
    return attention_core(w.rank, w.name, w.config.heads / w.parts.head_parts,
                          w.config.sees(w.block));
  };
  gpt2.column = gpt2.row = [](Wanted w, const GptParts::LinearSizes& z) {
    return make_unique<Linear>(w.rank, w.name, z.in, z.out, z.stddev, z.gelu);
  };
  gpt2.attention = [](Wanted w) {
    const std::int64_t C = w.config.width;
    return in_sequence(w.rank, w.name, w.parts.column(w.part(".qkv"), {C, 3 * C}), w.parts.core(w),
                       w.parts.row(w.part(".project"), {C, C, w.config.residual_stddev()}),
                       w.parts.dropout(w.part(".dropout")));
  };
  gpt2.mlp = [](Wanted w) {
    const std::int64_t C = w.config.width, hidden = 4 * C;
    const double stddev = w.config.residual_stddev();
    return in_sequence(
        w.rank, w.name,
        w.parts.column(w.part(".fc"), {.in = C, .out = hidden, .gelu = Linear::Gelu::Behind}),
        w.parts.row(w.part(".project"), {hidden, C, stddev, Linear::Gelu::Before}),
        w.parts.dropout(w.part(".dropout")));
  };
  gpt2.dropout = [](Wanted w) {
    return make_unique<Dropout>(w.rank, w.name, w.config.dropout, w.config.seed, w.parts.masks);
  };
  gpt2.positions = [](Wanted w) {
    return make_unique<Positions>(w.rank, w.config.context, w.config.width);
  };
  gpt2.block = [](Wanted w) {
    return make_unique<Block>(w.rank, w.name, w.parts.norm(w.part(".norm1")),
                              w.parts.attention(w.part(".attention")),
                              w.parts.norm(w.part(".norm2")), w.parts.mlp(w.part(".mlp")));
  };
  gpt2.last = [](Wanted w) { return w.parts.norm(w); };
  gpt2.table = [](Wanted w) {
    return token_table(w.config.vocabulary, w.config.table_rows(), w.config.width);
  };
  gpt2.embedding = [](Wanted w, Parameter table) {
    return make_unique<Embedding>(w.rank, std::move(table), w.config.dtype);
  };
  gpt2.head = [](Wanted w, Parameter* shared) {
    return shared ? make_unique<TiedHead>(w.rank, *shared)
                  : make_unique<TiedHead>(w.rank, last_table(w));
  };
  gpt2.loss = [](Wanted w) { return make_unique<CrossEntropy>(w.rank, w.config.vocabulary); };
  return gpt2;
}

Parameter last_table(const GptParts::Wanted& wanted) {
  Parameter table = wanted.parts.table(wanted);
  table.tied = Tied::Last;
  return table;
}

namespace {

bool has_embedding(const BlockRange& blocks) { return blocks.begin == 0 && blocks.embedding; }
bool has_head(const BlockRange& blocks, const GptConfig& config) {
  return blocks.end == config.layers && blocks.head;
}

class GptMaker {
 public:
  GptMaker(const Rank& rank, const GptConfig& config, const GptParts& parts)
      : rank_(rank), config_(config), parts_(parts) {
    model_.token_parts = parts.token_parts;
  }

  // Whole: the last stage is not on another rank than the first.
  enum class Table { Whole, Split };
  void add(const BlockRange& blocks, Table table) {
    const std::size_t begin = model_.layers.size();
    if (has_embedding(blocks))
      add_embedding(table);
    else
      add_edge(parts_.stage_begin, blocks.begin);
    add_blocks(blocks);
    if (has_head(blocks, config_))
      add_head();
    else
      add_edge(parts_.stage_end, blocks.end);
    model_.stages.push_back({begin, model_.layers.size()});
  }
  Model take() { return std::move(model_); }

 private:
  GptParts::Wanted wanted(const char* name) const { return {rank_, name, config_, parts_}; }
  void add_edge(const GptParts::Make& make, std::int64_t block) {
    std::unique_ptr<Layer> edge = make ? make({rank_, "edge", config_, parts_, block}) : nullptr;
    if (edge) model_.layers.push_back(std::move(edge));
  }
  void add_embedding(Table table_is) {
    const GptParts::Wanted w = wanted("wte");
    model_.layers.push_back(parts_.embedding(w, parts_.table(w)));
    tied_ = model_.layers.back()->parameters().front();
    if (table_is == Table::Split) tied_->tied = Tied::First;
    model_.layers.push_back(parts_.positions(wanted("wpe")));
    model_.layers.push_back(parts_.dropout(wanted("dropout")));
  }
  void add_blocks(const BlockRange& blocks) {
    std::vector<std::unique_ptr<Layer>> group;
    for (std::int64_t i = blocks.begin; i < blocks.end; ++i) {
      group.push_back(parts_.block({rank_, fmt::format("blocks.{}", i), config_, parts_, i}));
      if (parts_.recompute_blocks == 0) {
        model_.layers.push_back(std::move(group.back()));
        group.clear();
      } else if (i + 1 == blocks.end || std::ssize(group) == parts_.recompute_blocks) {
        const std::string name = group.front()->name();
        model_.layers.push_back(std::make_unique<Recomputed>(
            rank_, std::make_unique<Sequence>(rank_, name, std::exchange(group, {}))));
      }
    }
  }
  void add_head() {
    model_.layers.push_back(parts_.last(wanted("norm")));
    model_.layers.push_back(parts_.head(wanted("head"), tied_));
    model_.loss = parts_.loss(wanted("loss"));
  }

  const Rank& rank_;
  const GptConfig& config_;
  const GptParts& parts_;
  Model model_;
  Parameter* tied_ = nullptr;
};

}  // namespace

Model make_gpt(const Rank& rank, const GptConfig& config, const GptParts& parts,
               std::span<const BlockRange> stages) {
  config.validate();
  if (stages.empty()) fail("gpt: no stages, expected one or more");
  std::vector<BlockRange> ranges(stages.begin(), stages.end());
  const BlockRange* before = nullptr;
  for (BlockRange& blocks : ranges) {
    if (blocks.end == -1) blocks.end = config.layers;
    const bool follows = !before || (blocks.begin >= before->end && !has_embedding(blocks) &&
                                     !has_head(*before, config));
    if (!follows || blocks.begin > blocks.end || blocks.end > config.layers)
      fail(fmt::format("gpt: blocks {} to {} of {}{}", blocks.begin, blocks.end, config.layers,
                       before ? fmt::format(", behind a stage that ends at {}", before->end) : ""));
    before = &blocks;
  }
  GptMaker maker(rank, config, parts);
  for (const BlockRange& blocks : ranges)
    maker.add(blocks, has_head(*before, config) ? GptMaker::Table::Whole : GptMaker::Table::Split);
  return maker.take();
}

Model make_gpt(const Rank& rank, const GptConfig& config, const GptParts& parts,
               BlockRange blocks) {
  return make_gpt(rank, config, parts, {&blocks, 1});
}

}  // namespace aisc
