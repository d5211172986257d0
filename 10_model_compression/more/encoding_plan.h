// A fourth way beside keep, recompute and offload (02_cpu_offload/saving_plan.h): keep encoded
// (encoded_activations.h). Recomputing costs a forward, offloading a link; encoding costs passes
// over memory, and leaves more bytes than either.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "02_cpu_offload/saving_plan.h"
#include "10_model_compression/more/encoded_activations.h"

namespace aisc {

// What encoding costs a layer in one micro-batch.
struct EncodingCost {
  double encode_seconds = 0, decode_seconds = 0;
  std::int64_t bytes = 0;  // between forward and backward, of all that it saves
  bool encodes = true;     // whether it has this choice
};

// Of a layer that saves `bytes` in numbers of `number_bytes` each, all of them worth it, where
// memory moves so many bytes a second: what EncodedActivations asks of a device. A rounding reads a
// number and writes the short one, and back; F8 reads twice on the way there, since a scale is
// known behind its numbers alone. Scales are 4 bytes for 128 numbers. Throws Error for Lossless,
// whose bytes are known in the run alone, and for Plain.
EncodingCost encoding_cost(SavedAs how, std::int64_t bytes, std::int64_t number_bytes,
                           double bytes_per_second);

// `encoded` layers are Saving::Keep in the plan, which says their seconds and bytes, too.
struct EncodingPlan {
  SavingPlan plan;
  std::vector<bool> encoded;  // EncodedActivationsOptions::layers
};

// As plan_of(), with these layers encoded. While a layer computes all that it saves is plain, also
// in backward: so encoding helps the layers above. An encoding runs behind the layer's forward, a
// decoding in front of its backward, and both hide copies as the layer's own work does.
EncodingPlan plan_of(std::span<const LayerCost> layers, std::span<const EncodingCost> encodings,
                     std::vector<Saving> choices, std::vector<bool> encoded);

// A quickest of all plans that hold at most `limit_bytes`; nullopt: none fits. Never slower than
// fastest_within(), which has three of the ways. Exact, by the same argument: what comes above asks
// of a chain of layers only its bytes, its seconds and what its last one has on its way.
std::optional<EncodingPlan> fastest_with_encoding(std::span<const LayerCost> layers,
                                                  std::span<const EncodingCost> encodings,
                                                  std::int64_t limit_bytes);

}  // namespace aisc
