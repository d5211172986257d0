#include "common/train/recompute.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <utility>

#include "common/core/error.h"
#include "common/nn/sequence.h"

namespace aisc {

Recompute Recompute::parse(const std::string& text) {
  if (text == "none") return {};
  if (text == "block") return {.blocks = 1};
  if (text == "core") return {.core = true};
  if (text == "attention") return {.attention = true};
  if (text == "mlp") return {.mlp = true};
  if (text == "auto") return {.fitted = true};
  Recompute every;
  const char* const end = text.data() + text.size();
  if (text.starts_with("every:") &&
      std::from_chars(text.data() + 6, end, every.blocks).ptr == end && every.blocks > 0)
    return every;
  fail("recompute: found " + text +
       ", expected none, block, core, attention, mlp, every:k for k blocks at a time, or auto");
}

std::string Recompute::to_string() const {
  if (core) return "core";
  if (attention) return "attention";
  if (mlp) return "mlp";
  if (fitted) return "auto";
  return blocks == 0 ? "none" : blocks == 1 ? "block" : "every:" + std::to_string(blocks);
}

GptParts Recompute::parts(GptParts parts, RecomputeCore around_core) const {
  if (!around_core)
    around_core = [](const Rank& rank, std::unique_ptr<Layer> inner) {
      return std::make_unique<Recomputed>(rank, std::move(inner));
    };
  if (core)
    parts.core = [of = std::move(parts.core), around_core](const GptParts::Wanted& w) {
      return around_core(w.rank, of(w));
    };
  const auto around = [](GptParts::Make& make) {
    make = [of = std::move(make)](const GptParts::Wanted& w) -> std::unique_ptr<Layer> {
      return std::make_unique<Recomputed>(w.rank, of(w));
    };
  };
  if (attention) around(parts.attention);
  if (mlp) around(parts.mlp);
  if (!chosen.empty())
    parts.block = [of = std::move(parts.block), its = chosen](const GptParts::Wanted& w) {
      std::unique_ptr<Layer> block = of(w);
      if (!its.at(static_cast<std::size_t>(w.block))) return block;
      return std::unique_ptr<Layer>(std::make_unique<Recomputed>(w.rank, std::move(block)));
    };
  parts.recompute_blocks = blocks;
  return parts;
}

double Recompute::repeated_flops_per_token(const GptConfig& model, std::int64_t tokens) const {
  const auto L = static_cast<double>(model.layers), C = static_cast<double>(model.width);
  const double scores = 4 * L * C * static_cast<double>(tokens);
  const double all = 2 * model.block_weights_per_token() + scores;
  const double attentions = 8 * L * C * C + scores;  // and its four products of C x C
  const auto again = static_cast<double>(std::count(chosen.begin(), chosen.end(), true));
  return blocks > 0  ? all
         : core      ? scores
         : attention ? attentions
         : mlp       ? all - attentions
                     : all * again / L;
}

}  // namespace aisc
