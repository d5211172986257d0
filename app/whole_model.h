// The parameters of a whole model, in its order, on ranks that may have stages or parts of it:
// declared, without memory.
#pragma once

#include <cstdint>
#include <vector>

#include "common/train/trainer.h"

namespace aisc {

// The units of all parameters, also of experts: of a model without gradients, whose sums over
// ranks make no difference.
inline std::vector<Unit> all_units(const Model& model) {
  for (const auto& layer : model.layers)
    for (Parameter* p : layer->parameters()) p->sync = Sync::Data;
  return make_units(model);
}

class WholeModel {
 public:
  WholeModel(const Rank& rank, const Trainer& trainer)
      : model_(make_gpt(rank, trainer.config().model, trainer.whole_parts())),
        store_(rank.device, all_units(model_), {.values = false, .gradients = false}) {}

  const ParameterStore& store() const { return store_; }

 private:
  Model model_;
  ParameterStore store_;
};

}  // namespace aisc
