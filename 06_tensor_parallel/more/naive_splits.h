// Other ways to split the same layers, to see what they cost: as right as Megatron's, and with more
// to send. All are the serial model, with the parameters' names and values of gpt2_parts().
#pragma once

#include <memory>

#include "common/nn/gpt.h"

namespace aisc {

// The first matrix of the MLP by its rows (x A with A by rows: x by columns). Then each rank has a
// share of every hidden value, and GELU(X1 A1 + X2 A2) is not GELU(X1 A1) + GELU(X2 A2): the shares
// have to be summed before (Shoeybi et al., arXiv 1909.08053, section 3). 2 sums forward in place
// of 1: of 4 b s h elements and of b s h. Backward gathers the columns of both inputs' gradients.
// With rings a rank sends 15 b s h (t-1)/t elements, Megatron's MLP 4. Throws Error naming the MLP
// if t does not divide C. tp must outlive the layers.
std::unique_ptr<Layer> rows_first_mlp(const GptParts::Wanted& wanted, Communicator& tp);

// The straight split: every linear layer by columns, and what it returns is gathered, so that the
// next one has its whole input on all ranks. Attention between them is computed whole by each. A
// block gathers 3 + 1 + 4 + 1 times b s h elements forward and sums 1 + 1 + 1 + 4 times as many
// backward: with rings a rank sends 23 b s h (t-1)/t elements, Megatron's 8. Throws Error naming
// the attention or the MLP if t does not divide C. tp must outlive the layers.
GptParts straight_parts(Communicator& tp);

}  // namespace aisc
