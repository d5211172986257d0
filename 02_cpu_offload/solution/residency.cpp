#include "02_cpu_offload/residency.h"

#include <algorithm>

namespace aisc {
namespace {

bool has(const std::vector<std::size_t>& units, std::size_t unit) {
  return std::find(units.begin(), units.end(), unit) != units.end();
}

}  // namespace

std::optional<LayerTurn> next_turn(const LayerTurn& turn, std::size_t layers, bool training) {
  // LAB 02.1: come and go
  // > Backward begins where forward ends: with the last layer.
  if (turn.direction == LayerTurn::Forward) {
    if (turn.layer + 1 < layers) return LayerTurn{turn.layer + 1, LayerTurn::Forward};
    if (training) return LayerTurn{turn.layer, LayerTurn::Backward};
    return std::nullopt;
  }
  if (turn.layer == 0) return std::nullopt;
  return LayerTurn{turn.layer - 1, LayerTurn::Backward};
  // END LAB 02.1
}

Moves moves_before(const LayerTurn& turn, std::span<const LayerUnits> layers,
                   const std::vector<bool>& here, bool training, const ResidencyOptions& options) {
  Moves moves{.evict = {}, .fetch = {}, .needed = layers[turn.layer].reads};
  std::vector<std::size_t> wanted = moves.needed;
  if (const auto next = next_turn(turn, layers.size(), training); next && options.prefetch)
    for (const std::size_t unit : layers[next->layer].reads)
      if (!has(wanted, unit)) wanted.push_back(unit);
  // LAB 02.1: come and go
  // > `wanted` are the layer's own units and, with prefetch, those of the next turn, each once.
  // > Which units that are here must go, which of the wanted ones must come?
  for (std::size_t unit = 0; unit < here.size(); ++unit)
    if (here[unit] && !has(wanted, unit)) moves.evict.push_back(unit);
  for (const std::size_t unit : wanted)
    if (!here[unit]) moves.fetch.push_back(unit);
  // END LAB 02.1
  return moves;
}

}  // namespace aisc
