#include "common/ops/cuda/kernels.h"

#include "common/ops/kernels.h"

namespace aisc::ops {

const Kernels& cuda_kernels() {
  static constexpr Kernels kernels{
      .matmul = cuda::matmul,
      .fill = cuda::fill,
      .cast = cuda::cast,
      .add = cuda::add,
      .scale = cuda::scale,
      .relu = cuda::relu,
      .relu_backward = cuda::relu_backward,
      .gelu = cuda::gelu,
      .gelu_backward = cuda::gelu_backward,
      .sigmoid = cuda::sigmoid,
      .sigmoid_backward = cuda::sigmoid_backward,
      .dropout = cuda::dropout,
      .dropout_backward = cuda::dropout_backward,
      .add_bias = cuda::add_bias,
      .add_bias_backward = cuda::add_bias_backward,
      .layer_norm = cuda::layer_norm,
      .layer_norm_backward = cuda::layer_norm_backward,
      .scale_rows = cuda::scale_rows,
      .row_dots = cuda::row_dots,
      .softmax = cuda::softmax,
      .softmax_backward = cuda::softmax_backward,
      .masked_softmax = cuda::masked_softmax,
      .normalize_rows = cuda::normalize_rows,
      .normalize_rows_backward = cuda::normalize_rows_backward,
      .top_k = cuda::top_k,
      .take_columns = cuda::take_columns,
      .take_columns_backward = cuda::take_columns_backward,
      .permute = cuda::permute,
      .attention = cuda::attention,
      .attention_backward = cuda::attention_backward,
      .causal_attention = cuda::causal_attention,
      .causal_attention_backward = cuda::causal_attention_backward,
      .store_keys_values = cuda::store_keys_values,
      .cached_attention = cuda::cached_attention,
      .embedding = cuda::embedding,
      .token_positions = cuda::token_positions,
      .embedding_backward = cuda::embedding_backward,
      .cross_entropy = cuda::cross_entropy,
      .cross_entropy_backward = cuda::cross_entropy_backward,
      .sum_of_squares = cuda::sum_of_squares,
      .adamw = cuda::adamw,
      .sgd = cuda::sgd,
  };
  return kernels;
}

}  // namespace aisc::ops
