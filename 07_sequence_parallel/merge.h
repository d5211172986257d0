// Attention to some keys, and attention to others, made one (Dao et al., "FlashAttention", 2022;
// Liu, Zaharia, Abbeel, "Ring attention", arXiv 2310.01889).
#pragma once

#include "common/core/tensor.h"

namespace aisc {

// Of one row: the log-sum-exp of both sets of keys together, and how much of each result is in the
// result of both.
//   lse = log(exp(a) + exp(b)),  of_a = exp(a - lse),  of_b = exp(b - lse)
// The shares are to be exact to the last digits, and at 10,000 the difference a - lse has lost four
// of them. So, with m the larger of a and b, they are made as
//   of_a = exp(a - m) / (exp(a - m) + exp(b - m)),  lse = m + log(that sum)
// Minus infinity is the log-sum-exp of no key. By hand: of log 1 and log 3 it is log 4, of_a is 1/4
// and of_b 3/4; of minus infinity and 5 it is 5, with 0 and 1; of no keys on either side it is
// minus infinity, with 0 and 0. Nothing overflows: of 10,000 and -10,000 it is 10,000, with 1, 0.
struct Merged {
  double lse, of_a, of_b;
};
Merged merged(double a, double b);

// out, lse = those of its keys and the block's together. out (B, T, H D) in F32 (F64 for F64), lse
// (B, H, T); block_out like out or shorter. Rows are weighted where they are; log-sum-exps, a
// number for each token and head, pass through the host.
void merge_attention(View out, View lse, ConstView block_out, ConstView block_lse);

}  // namespace aisc
