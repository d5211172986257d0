// The mean and the spread of each channel, over the images of one rank or of all: what batch norm
// divides by, and what makes it depend on the number of ranks, or not.
#pragma once

#include <span>
#include <vector>

#include "common/comm/communicator.h"

namespace aisc {

// Of C channels, each with `count` values: their mean, and the sum of squares of value - mean.
// Squares are centred before they are summed: E[x^2] - E[x]^2 loses as many digits as the mean is
// larger than the spread, twice.
struct ChannelMoments {
  double count = 0;
  std::vector<double> means, squares;  // (C) each
};

// Of x (N, C, H, W) over N, H, W, in F64; of 0 images all 0. Throws Error as require_images().
ChannelMoments channel_moments(ConstView x);

// Those of a and b together (Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for
// computing sample variances", 1979). With n = a.count + b.count and d = b.mean - a.mean:
//   mean = a.mean + d b.count / n,   squares = a.squares + b.squares + d^2 a.count b.count / n
ChannelMoments merged(const ChannelMoments& a, const ChannelMoments& b);

// Those of all ranks' images together, merged in the ranks' order: the same bits on all. A rank
// with 0 images takes part, too. Collective; blocks. One all-gather of 2 C + 1 numbers a rank, 8
// bytes each, as PyTorch's SyncBatchNorm has it.
ChannelMoments moments_of_all(Communicator& ranks, const ChannelMoments& mine);

// The sums that a batch norm's backward needs of all images: element by element, of all ranks.
// Collective; blocks. One all-reduce of sums.size() numbers, 8 bytes each.
void sums_of_all(Communicator& ranks, std::span<double> sums);

}  // namespace aisc
