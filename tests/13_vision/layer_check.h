// Layers with drawn parameters, and ranks that share a batch unevenly.
#pragma once

#include <cstdint>

#include "common/core/range.h"
#include "common/nn/layer.h"
#include "common/nn/parameter_store.h"
#include "tests/support/tensors.h"

namespace aisc {

// The values and gradients of a layer's parameters, in F64, drawn: the same on all ranks.
struct DrawnLayer {
  DrawnLayer(Device& device, Layer& layer)
      : store(device, {{"layer", layer.parameters()}},
              {.value_dtype = DType::F64, .grad_dtype = DType::F64}) {
    for (const Parameter* p : store.parameters())
      device.copy(p->value(), random_tensor(p->shape, DType::F64, device, p->name, 0.5));
  }
  ParameterStore store;
};

// Images of a batch of `all` that each of so many ranks has: rank 0 has one, or none where there
// are four, the others share the rest.
inline Range uneven_share(std::int64_t all, int rank, int ranks) {
  if (ranks == 1) return {0, all};
  const std::int64_t first = ranks == 4 ? 0 : 1;
  if (rank == 0) return {0, first};
  return share_of(Range{first, all}, rank - 1, ranks - 1);
}

}  // namespace aisc
