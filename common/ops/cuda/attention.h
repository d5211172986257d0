// What the kernels of attention share: the sizes of a call, what a query sees, and the two ways to
// compute it. Tensor cores take BF16 and F16 whose rows begin at multiples of 16 bytes, up to 128
// columns a head; everything else is the plain way's.
//
// Both take q and kv apart. Where one tensor has queries, keys and values, kv is the same tensor
// from the first key on: only the strides differ.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <initializer_list>
#include <limits>

#include "common/core/tensor.h"
#include "common/ops/ops.h"

namespace aisc::cuda {

template <class I>
__device__ __forceinline__ I smaller(I a, I b) {
  return a < b ? a : b;
}

// Elements from a head, a token and a sample to the next.
struct Strides {
  std::int64_t head, token, sample;

  // Where the rows of a head of a sample begin.
  __device__ __forceinline__ std::int64_t at(std::int64_t b, std::int64_t h) const {
    return b * sample + h * head;
  }
};

// B samples of T queries and K keys, H heads of D columns.
struct AttentionSizes {
  AttentionSizes(const ConstView& queries, const ConstView& keys_values, std::int64_t heads);
  AttentionSizes(const ConstView& qkv, std::int64_t heads);

  std::int64_t B;
  int T, K, H, D;
  Strides q, kv, out;  // dq and dkv are as q and kv, dout as out
  std::int64_t value;  // elements from a key to its value
  double scale;        // of the scores: 1 / sqrt(D)

 private:
  AttentionSizes(std::int64_t samples, std::int64_t queries, std::int64_t keys, std::int64_t heads,
                 std::int64_t columns, std::int64_t parts);
};

// ops::AttentionMask with a number of keys, as kernels have it. A query sees the first keys, and
// later queries see no fewer: both functions say so, the one for queries, the other for keys.
class SeenKeys {
 public:
  SeenKeys(const ops::AttentionMask& mask, int keys)
      : causal_(mask.causal),
        keys_(keys),
        query_runs_(mask.queries),
        key_runs_(mask.keys),
        lengths_(static_cast<const std::int32_t*>(mask.key_lengths.raw())) {}

  // How many keys a query sees.
  __device__ __forceinline__ int seen(std::int64_t sample, int query) const {
    if (!causal_ && !lengths_) return keys_;
    std::int64_t end = causal_ ? position(query_runs_, query) + 1 : lengths_[sample];
    if (causal_ && lengths_) end = smaller<std::int64_t>(end, lengths_[sample]);
    return static_cast<int>(smaller<std::int64_t>(keys_, before(key_runs_, end)));
  }
  // The first query that sees a key. Of a key that is not there or that nobody sees, a number
  // beyond all queries.
  __device__ __forceinline__ int first_to_see(std::int64_t sample, int key) const {
    const std::int64_t at = position(key_runs_, key);
    if (key >= keys_ || (lengths_ && at >= lengths_[sample])) return kNobody;
    return causal_ ? static_cast<int>(smaller<std::int64_t>(kNobody, before(query_runs_, at))) : 0;
  }

 private:
  static constexpr int kNobody = std::numeric_limits<int>::max();

  // As the members of ops::TokenRuns.
  static __device__ __forceinline__ std::int64_t position(const ops::TokenRuns& runs, int t) {
    return t < runs.split ? runs.first + t : runs.second + t - runs.split;
  }
  static __device__ __forceinline__ std::int64_t before(const ops::TokenRuns& runs,
                                                        std::int64_t end) {
    if (end - runs.first < runs.split) return end > runs.first ? end - runs.first : 0;
    return runs.split + (end > runs.second ? end - runs.second : 0);
  }

  bool causal_;
  int keys_;
  ops::TokenRuns query_runs_, key_runs_;
  const std::int32_t* lengths_;
};

// How gradients are kept: in the type of q and kv or in F32, and whether they are added to what is
// there.
struct GradientStore {
  bool in_f32, accumulate;
};

// Blocks that each take one tile of `rows` of so many tokens, of one head of one sample. Throws
// Error beyond the 2^31 - 1 that a grid may have.
unsigned attention_blocks(const AttentionSizes& z, int tokens, int rows);

// True if tensor cores know the type and rows of q's and kv's size, in all these tensors, can be
// copied in pieces of 16 bytes.
bool suits_tensor_cores(const AttentionSizes& z, DType dtype, std::initializer_list<ConstView> all);

// attention_plain.cu: any type and size.
void plain_attention(View out, View log_sum_exp, ConstView q, ConstView kv, const AttentionSizes& z,
                     const SeenKeys& mask);
void plain_attention_backward(View dq, View dkv, ConstView dout, ConstView q, ConstView kv,
                              ConstView log_sum_exp, ConstView delta, const AttentionSizes& z,
                              const SeenKeys& mask, ops::Into into);
// delta (B, H, T), typed as log_sum_exp: the sum over the columns of a head of dout * out.
void attention_delta(View delta, ConstView dout, ConstView out, const AttentionSizes& z);

}  // namespace aisc::cuda
