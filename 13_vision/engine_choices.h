// Which form of an engine is the quickest of those that fit: ZeRO's stage, and micro-batches.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/nn/model.h"

namespace aisc {

// Of a rank between two steps, in bytes.
struct StateBytes {
  double weights = 0, gradients = 0, moments = 0;
  double all() const { return weights + gradients + moments; }
};
// Of `parameters` in F32, which AdamW keeps two moments of, on `ranks` ranks: stage 1 divides the
// moments, stage 2 the gradients, too, and stage 3 all (Rajbhandari et al., "ZeRO: memory
// optimizations toward training trillion parameter models", SC 2020, section 5). Padding comes on
// top: less than `ranks` elements and a few for each unit.
StateBytes state_bytes(std::int64_t parameters, int zero, int ranks);

// Bytes that the layers keep of one image, from its forward to its backward: they pass `images`
// (N, C, H, W), 1 or more, in training. Collective where a norm is over all ranks.
double saved_bytes(const Model& model, const Tensor& images);

struct EngineChoice {
  int zero = 0;
  std::int64_t micro_batches = 1;
  double bytes = 0;          // state, and what the images of a micro-batch keep
  std::string dropped = {};  // why it is none: what it needs, and what there is
  double seconds = 0;        // of a step; 0: not measured
};

struct EngineSpace {
  std::int64_t batch = 64;
  int ranks = 1;
  std::int64_t parameters = 0;
  double image_bytes = 0;  // saved_bytes
  double limit = 0;        // bytes of a rank
};
// All of them: of stages 0 to 3, on one rank stage 0 alone, and for each 1, 2, 4 ... micro-batches,
// as long as these and the ranks divide the batch. Those that need more than the limit are dropped.
// Throws Error where the ranks do not divide the batch.
std::vector<EngineChoice> engine_choices(const EngineSpace& space);

// Seconds of a step of so many steps of this choice.
using MeasureChoice = std::function<double(const EngineChoice& choice, std::int64_t steps)>;
// Measures those that are not dropped, by successive halving (10_model_compression/more/search.h),
// `steps` each in the mean, 4 or more, and sorts: the measured ones from the quickest, then the
// others. `measure` returns the same on all ranks; what throws Error drops its choice. Throws Error
// where all of them do, and for more choices than 2^steps.
std::vector<EngineChoice> measured(std::vector<EngineChoice> choices, std::int64_t steps,
                                   const MeasureChoice& measure);

}  // namespace aisc
