// What a layer costs that makes n vectors of n vectors, each of which may depend on others: the
// four kinds of table 1 of "Attention is all you need" (Vaswani et al., arXiv 1706.03762).
#pragma once

#include <cstdint>
#include <functional>

#include "common/comm/rank.h"
#include "common/model/machine.h"

namespace aisc {

enum class SequenceLayer {
  Attention,    // each vector looks at all
  Recurrent,    // ... at a state, which was made of those before it
  Convolution,  // ... at k neighbours
  Restricted,   // ... at r, by attention
};
inline constexpr SequenceLayer kSequenceLayers[] = {
    SequenceLayer::Attention, SequenceLayer::Recurrent, SequenceLayer::Convolution,
    SequenceLayer::Restricted};
const char* name_of(SequenceLayer layer);

struct SequenceSizes {
  std::int64_t tokens = 0, width = 0;  // n, d
  std::int64_t taps = 3, reach = 1;    // k, r
};

// The table's column "complexity per layer" as a number of multiplications: n^2 d, n d^2, k n d^2,
// r n d.
double table_multiplications(SequenceLayer layer, const SequenceSizes& sizes);

// Of one sequence, forward, as operations are charged to a device (OpCost): a product of 2 m FLOPs
// has m multiplications.
struct SequenceCost {
  // Of the product alone that the table counts: the scores of attention; the state by the weights
  // of a recurrent cell that has one gate; the windows of a convolution by its taps. So it leaves
  // out half of attention (scores by values), projections, what a cell makes of its input.
  double counted = 0;
  // How many products that is: each waits for the one before it.
  std::int64_t in_a_chain = 0;
  // Of all products of a layer that is used: attention with queries, keys, values and projection
  // (2 n^2 d + 4 n d^2, or 2 r n d + 4 n d^2), an LSTM (8 n d^2), the convolution.
  double whole = 0;
  double seconds = 0;  // of that layer on the machine, in virtual time, F32
};
// Restricted attention is here attention in blocks: each token looks at the r of its own block. The
// paper has neighbourhoods around each token, which cost as much. Throws Error unless n, d, k and r
// are 1 or more and r divides n.
SequenceCost sequence_cost(SequenceLayer layer, const SequenceSizes& sizes, const Machine& machine);

// Seconds that `run` takes by this clock: the median of so many rounds behind a first one.
double median_round(const Clock& clock, int rounds, const std::function<void()>& run);

// Seconds of that layer here: of one sequence, forward, by the clock of rank, whose device is a
// CPU, as median_round(). F32, as many threads as OpenMP has. Throws Error as sequence_cost().
double sequence_seconds(const Rank& rank, SequenceLayer layer, const SequenceSizes& sizes,
                        int rounds);

}  // namespace aisc
