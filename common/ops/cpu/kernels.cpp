#include "common/ops/cpu/kernels.h"

#include "common/ops/kernels.h"

namespace aisc::ops {

const Kernels& cpu_kernels() {
  static constexpr Kernels kernels{
      .matmul = cpu::matmul,
      .fill = cpu::fill,
      .cast = cpu::cast,
      .add = cpu::add,
      .scale = cpu::scale,
      .relu = cpu::relu,
      .relu_backward = cpu::relu_backward,
      .gelu = cpu::gelu,
      .gelu_backward = cpu::gelu_backward,
      .sigmoid = cpu::sigmoid,
      .sigmoid_backward = cpu::sigmoid_backward,
      .dropout = cpu::dropout,
      .dropout_backward = cpu::dropout_backward,
      .add_bias = cpu::add_bias,
      .add_bias_backward = cpu::add_bias_backward,
      .layer_norm = cpu::layer_norm,
      .layer_norm_backward = cpu::layer_norm_backward,
      .scale_rows = cpu::scale_rows,
      .row_dots = cpu::row_dots,
      .softmax = cpu::softmax,
      .softmax_backward = cpu::softmax_backward,
      .masked_softmax = cpu::masked_softmax,
      .normalize_rows = cpu::normalize_rows,
      .normalize_rows_backward = cpu::normalize_rows_backward,
      .top_k = cpu::top_k,
      .take_columns = cpu::take_columns,
      .take_columns_backward = cpu::take_columns_backward,
      .permute = cpu::permute,
      .attention = cpu::attention,
      .attention_backward = cpu::attention_backward,
      .causal_attention = cpu::causal_attention,
      .causal_attention_backward = cpu::causal_attention_backward,
      .store_keys_values = cpu::store_keys_values,
      .cached_attention = cpu::cached_attention,
      .embedding = cpu::embedding,
      .token_positions = cpu::token_positions,
      .embedding_backward = cpu::embedding_backward,
      .cross_entropy = cpu::cross_entropy,
      .cross_entropy_backward = cpu::cross_entropy_backward,
      .sum_of_squares = cpu::sum_of_squares,
      .adamw = cpu::adamw,
      .sgd = cpu::sgd,
  };
  return kernels;
}

}  // namespace aisc::ops
