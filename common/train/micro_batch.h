// What a rank computes at a time: some samples of a step, or its part of their tokens.
#pragma once

#include <cstdint>
#include <memory>

#include "common/data/batches.h"
#include "common/nn/layer.h"

namespace aisc {

// One of a rank's micro-batches. What `pass` looks at is here.
struct MicroBatch {
  Batch batch;
  Pass pass;
  std::unique_ptr<SideInput> side = {};
};
// With what layers read of the batch in `pass`.
MicroBatch micro_batch_of(Batch batch, Pass pass);

// The tokens of a sequence that a rank has: `count` of them, where `runs` says.
struct TokenPart {
  std::int64_t count = 0;
  ops::TokenRuns runs = {};
};
// Of samples of T tokens, and of what belongs to each token, this part's, run by run. Lengths are
// those of whole sequences still, and terms those of the whole batch. Picked places become places
// of this part's n rows a sample, b n + t: one that lies on another rank is B n, the row that is
// not here, and has no target here, -1.
Batch batch_of_part(Batch whole, const TokenPart& part);

}  // namespace aisc
