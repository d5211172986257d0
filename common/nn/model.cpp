#include "common/nn/model.h"

#include <algorithm>
#include <map>

namespace aisc {

std::vector<Unit> make_units(const Model& model, Sync sync) {
  std::vector<Unit> units;
  for (const auto& layer : model.layers)
    for (Unit& unit : layer->units()) {
      std::erase_if(unit.parameters, [&](const Parameter* p) { return p->sync != sync; });
      if (!unit.parameters.empty()) units.push_back(std::move(unit));
    }
  return units;
}

std::vector<Unit> all_units(const Model& model) {
  for (const auto& layer : model.layers)
    for (Parameter* p : layer->parameters()) p->sync = Sync::Data;
  return make_units(model);
}

std::vector<LayerUnits> layer_units(const Model& model, std::span<const Unit> units) {
  std::map<const Parameter*, std::size_t> unit_of;
  for (std::size_t u = 0; u < units.size(); ++u)
    for (const Parameter* p : units[u].parameters) unit_of[p] = u;
  std::vector<LayerUnits> all(model.layers.size());
  std::vector<bool> touched(units.size());  // by this layer or one before it
  for (std::size_t i = 0; i < all.size(); ++i) {
    LayerUnits& of = all[i];
    for (const auto& list : {model.layers[i]->parameters(), model.layers[i]->borrows()})
      for (const Parameter* p : list)
        if (const auto found = unit_of.find(p); found != unit_of.end())
          of.reads.push_back(found->second);
    std::sort(of.reads.begin(), of.reads.end());
    of.reads.erase(std::unique(of.reads.begin(), of.reads.end()), of.reads.end());
    for (const std::size_t unit : of.reads) {  // backward comes from behind: the first is the last
      if (!touched[unit]) of.completes.push_back(unit);
      touched[unit] = true;
    }
  }
  return all;
}

}  // namespace aisc
