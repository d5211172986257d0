// The three steps of data parallelism, plain: the same weights on all ranks, a part of the batch
// for each, one gradient for all.
#pragma once

#include <cstdint>

#include "common/comm/communicator.h"
#include "common/core/tensor.h"

namespace aisc {

// Step 1. Rank 0's weights become everybody's.  weights (n)
void broadcast_weights(Communicator& ranks, View weights);
// Throws Error naming the first rank whose weights are not, to the last bit, rank 0's: compared are
// checksums, 8 bytes a rank. Collective; all ranks throw.
void require_equal_weights(Communicator& ranks, ConstView weights);

// Step 3, where all ranks have as many tokens. `gradients` (n) of each rank are the mean over its
// own tokens; afterwards those of all are the mean over all tokens. Weights of ranks that went
// their own way are averaged alike, by samples (local_steps.h).
void average_gradients(Communicator& ranks, View gradients);

// Step 3 for any shares. `gradients` are the mean over this rank's `tokens` tokens, which other
// ranks have more or fewer of; afterwards those of all are the mean over all tokens. A rank with 0
// tokens has computed nothing: what its gradients hold does not count, whatever it is. Throws Error
// for tokens < 0, and where no rank has any.
void average_by_tokens(Communicator& ranks, View gradients, std::int64_t tokens);

// The root of the mean over ranks of x squared: the norm that is reported where ranks keep their
// gradients to themselves.
double root_mean_square(Communicator& ranks, double x);

}  // namespace aisc
