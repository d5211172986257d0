// The operations of ops.h on a GPU. Shapes, types and devices have been checked by ops.cpp, so
// that these functions check only what lies in the data (ids and targets). Signatures and
// contracts: see ops.h. What is listed here is where each is defined.
#pragma once

#include "common/ops/ops.h"

namespace aisc::cuda {

using ops::Into;

// products.cpp
decltype(ops::matmul) matmul;

// elementwise.cu
decltype(ops::fill) fill;
decltype(ops::cast) cast;
decltype(ops::add) add;
decltype(ops::scale) scale;
decltype(ops::relu) relu;
decltype(ops::relu_backward) relu_backward;
decltype(ops::gelu) gelu;
decltype(ops::gelu_backward) gelu_backward;
decltype(ops::sigmoid) sigmoid;
decltype(ops::sigmoid_backward) sigmoid_backward;

// dropout.cu
decltype(ops::dropout) dropout;
decltype(ops::dropout_backward) dropout_backward;

// rows.cu
decltype(ops::add_bias) add_bias;
decltype(ops::add_bias_backward) add_bias_backward;
decltype(ops::scale_rows) scale_rows;
decltype(ops::row_dots) row_dots;
decltype(ops::softmax) softmax;
decltype(ops::softmax_backward) softmax_backward;
decltype(ops::masked_softmax) masked_softmax;
decltype(ops::normalize_rows) normalize_rows;
decltype(ops::normalize_rows_backward) normalize_rows_backward;

// layer_norm.cu
decltype(ops::layer_norm) layer_norm;
decltype(ops::layer_norm_backward) layer_norm_backward;

// choices.cu
decltype(ops::top_k) top_k;
decltype(ops::take_columns) take_columns;
decltype(ops::take_columns_backward) take_columns_backward;

// permute.cu
decltype(ops::permute) permute;

// attention_forward.cu, attention_backward.cu; attention.h
decltype(ops::attention) attention;
decltype(ops::attention_backward) attention_backward;
decltype(ops::causal_attention) causal_attention;
decltype(ops::causal_attention_backward) causal_attention_backward;

// cached_attention.cu
decltype(ops::store_keys_values) store_keys_values;
decltype(ops::cached_attention) cached_attention;

// tables.cu
decltype(ops::embedding) embedding;
decltype(ops::token_positions) token_positions;
decltype(ops::embedding_backward) embedding_backward;

// cross_entropy.cu
decltype(ops::cross_entropy) cross_entropy;
decltype(ops::cross_entropy_backward) cross_entropy_backward;

// optimizers.cu
decltype(ops::sum_of_squares) sum_of_squares;
decltype(ops::adamw) adamw;
decltype(ops::sgd) sgd;

}  // namespace aisc::cuda
