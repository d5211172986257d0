// The operations of ops.h on a GPU. Shapes, types and devices have been checked by ops.cpp, so
// that these functions check only what lies in the data (ids and targets). Contracts: see ops.h.
#pragma once

#include "common/ops/ops.h"

namespace aisc::cuda {

using ops::Into;

// products.cpp
void matmul(View out, ConstView a, ConstView b, const ops::MatmulOptions& options);

// elementwise.cu
void fill(View out, double value);
void cast(View out, ConstView x);
void add(View out, ConstView a, ConstView b);
void scale(View out, ConstView x, double factor);
void relu(View y, ConstView x);
void relu_backward(View dx, ConstView dy, ConstView x);
void gelu(View y, ConstView x);
void gelu_backward(View dx, ConstView dy, ConstView x);

// dropout.cu
void dropout(View y, ConstView x, double rate, const Philox& random, std::uint64_t first_index);

// rows.cu
void add_bias(View out, ConstView x, ConstView bias);
void add_bias_backward(View dbias, ConstView dy, Into into);
void softmax(View y, ConstView x);
void softmax_backward(View dx, ConstView dy, ConstView y);

// layer_norm.cu
void layer_norm(View y, View mean, View rstd, ConstView x, ConstView weight, ConstView bias,
                double epsilon);
void layer_norm_backward(View dx, View dweight, View dbias, ConstView dy, ConstView x,
                         ConstView weight, ConstView mean, ConstView rstd, Into weights_into);

// permute.cu
void permute(View out, ConstView x, std::array<int, 4> order);

// attention_forward.cu, attention_backward.cu; attention.h
void causal_attention(View out, View log_sum_exp, ConstView qkv, std::int64_t heads);
void causal_attention_backward(View dqkv, ConstView dout, ConstView qkv, ConstView out,
                               ConstView log_sum_exp, std::int64_t heads);

// cached_attention.cu
void store_keys_values(View keys_values, ConstView qkv, std::int64_t heads, std::int64_t first);
void cached_attention(View out, ConstView qkv, ConstView keys_values, std::int64_t heads,
                      std::int64_t first);

// tables.cu
void embedding(View out, ConstView table, ConstView ids, Into into);
void token_positions(View ids, std::int64_t first);
void embedding_backward(View dtable, ConstView dout, ConstView ids, Into into);

// cross_entropy.cu
void cross_entropy(View losses, View log_sum_exp, ConstView logits, ConstView targets,
                   std::int64_t classes);
void cross_entropy_backward(View dlogits, ConstView logits, ConstView log_sum_exp,
                            ConstView targets, std::int64_t classes, double factor);

// optimizers.cu
double sum_of_squares(ConstView x);
void adamw(View weight, View master, View m, View v, ConstView gradient,
           const ops::AdamWStep& step);
void sgd(View weight, View master, View velocity, ConstView gradient, const ops::SgdStep& step);

}  // namespace aisc::cuda
