// Whole neurons go: what is left is a smaller MLP, which every device computes faster.
#pragma once

#include <cstdint>
#include <vector>

#include "common/core/tensor.h"

namespace aisc {

// The weights of an MLP around its hidden neurons (H), on the host: y = g(x fc^T + fc_bias)
// project^T + a bias, with C columns in and out. Of one floating type.
struct MlpWeights {
  Tensor fc;       // (H, C): a row is what a neuron listens to
  Tensor fc_bias;  // (H)
  Tensor project;  // (C, H): a column is what it says
};

// The L2 norm of a neuron's weights, of its row, its bias and its column: (H). Li et al., "Pruning
// filters for efficient ConvNets", arXiv 1608.08710, section 3.1, rank filters by the L1 norm, and
// find (section 4.4) that the L2 norm makes no noticeable difference.
std::vector<double> neuron_norms(const MlpWeights& mlp);

// The `count` neurons of the largest norms, in their order; of equal ones the first stay. Throws
// Error for a count that is not 1 .. n.
std::vector<std::int64_t> largest_neurons(const std::vector<double>& norms, std::int64_t count);

// The MLP of these neurons alone, in this order: (h, C), (h), (C, h). What it computes is what the
// whole one does whose other neurons are 0. Throws Error for a neuron that there is not.
MlpWeights with_neurons(const MlpWeights& mlp, const std::vector<std::int64_t>& neurons);

// The same MLP with its other neurons' weights at 0: what costs as much as before.
void mask_other_neurons(const MlpWeights& mlp, const std::vector<std::int64_t>& neurons);

}  // namespace aisc
