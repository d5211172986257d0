// g and g-bar: where the tokens of tensor ranks come together and are dealt out again. Each is the
// other's backward (Korthikanti et al., "Reducing activation recomputation in large transformer
// models", arXiv 2205.05198, section 4.2.2, figure 5).
//
//   norm: 1/t of the tokens  ->  g  ->  x A_r, GELU, (...) B_r: all tokens  ->  g-bar  ->  dropout,
//                                                                               residual: 1/t
//           forward                            backward
//   g       gathers the tokens of all ranks    sums dx, and each rank keeps its tokens
//   g-bar   sums y, and each keeps its tokens  gathers the tokens of all ranks
//
// Together they send what the two all-reduces of f and g do (06_tensor_parallel/f_and_g.h), of
// which each is a reduce-scatter and an all-gather.
#pragma once

#include "06_tensor_parallel/f_and_g.h"

namespace aisc {

// Tokens as tensor ranks share them: of x (B, T, C), seen as B T rows, rank r has the rows r B T/t
// .. (r+1) B T/t, in a tensor (B, T/t, C). That is a run of memory whatever B is; only what asks
// for a token's place in its sequence has to know (token_share.h).
enum class SequenceConjugate { G, GBar };

// x behind g or g-bar in a direction: (B, T/t, C) -> (B, T, C) or back. It has begun when this
// returns. Throws Error naming the tokens and the ranks if t does not divide T.
// Steps: t-1. Bytes sent per rank: (t-1)/t of the tensor of all tokens.
Passing begin_through(SequenceConjugate which, Direction direction, Communicator& tp,
                      const Tensor& x);

}  // namespace aisc
