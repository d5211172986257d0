// The parameters of a whole model, in its order, on ranks that may have stages or parts of it:
// declared, without memory.
#pragma once

#include <cstdint>
#include <vector>

#include "common/train/trainer.h"

namespace aisc {

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
