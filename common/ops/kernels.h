// What a kind of device computes with: one function for each operation of ops.h. ops.cpp checks the
// arguments and calls them; shapes, types and devices are then right.
#pragma once

#include "common/ops/ops.h"

namespace aisc::ops {

struct Kernels {
  decltype(&ops::matmul) matmul;
  decltype(&ops::fill) fill;
  decltype(&ops::cast) cast;
  decltype(&ops::add) add;
  decltype(&ops::scale) scale;
  decltype(&ops::relu) relu;
  decltype(&ops::relu_backward) relu_backward;
  decltype(&ops::gelu) gelu;
  decltype(&ops::gelu_backward) gelu_backward;
  decltype(&ops::sigmoid) sigmoid;
  decltype(&ops::sigmoid_backward) sigmoid_backward;
  decltype(&ops::dropout) dropout;
  decltype(&ops::dropout_backward) dropout_backward;
  decltype(&ops::add_bias) add_bias;
  decltype(&ops::add_bias_backward) add_bias_backward;
  decltype(&ops::layer_norm) layer_norm;
  decltype(&ops::layer_norm_backward) layer_norm_backward;
  decltype(&ops::scale_rows) scale_rows;
  decltype(&ops::row_dots) row_dots;
  decltype(&ops::softmax) softmax;
  decltype(&ops::softmax_backward) softmax_backward;
  decltype(&ops::masked_softmax) masked_softmax;
  decltype(&ops::normalize_rows) normalize_rows;
  decltype(&ops::normalize_rows_backward) normalize_rows_backward;
  decltype(&ops::top_k) top_k;
  decltype(&ops::take_columns) take_columns;
  decltype(&ops::take_columns_backward) take_columns_backward;
  decltype(&ops::permute) permute;
  decltype(&ops::attention) attention;
  decltype(&ops::attention_backward) attention_backward;
  decltype(&ops::causal_attention) causal_attention;
  decltype(&ops::causal_attention_backward) causal_attention_backward;
  decltype(&ops::store_keys_values) store_keys_values;
  decltype(&ops::cached_attention) cached_attention;
  decltype(&ops::embedding) embedding;
  decltype(&ops::token_positions) token_positions;
  decltype(&ops::embedding_backward) embedding_backward;
  decltype(&ops::cross_entropy) cross_entropy;
  decltype(&ops::cross_entropy_backward) cross_entropy_backward;
  decltype(&ops::sum_of_squares) sum_of_squares;
  decltype(&ops::adamw) adamw;
  decltype(&ops::sgd) sgd;
};

// Of a device. Throws Error where this program was built without them.
const Kernels& cpu_kernels();
const Kernels& cuda_kernels();
const Kernels& meta_kernels();  // that do nothing; numbers that they return are 0
inline const Kernels& kernels_of(const Device& device) {
  switch (device.kind()) {
    case DeviceKind::Cuda:
      return cuda_kernels();
    case DeviceKind::Meta:
      return meta_kernels();
    default:
      return cpu_kernels();
  }
}

}  // namespace aisc::ops
