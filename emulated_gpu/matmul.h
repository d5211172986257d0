// What cublasLtMatmul is asked for, checked and in one piece, and the loops that compute it.
#pragma once

#include <cublasLt.h>

namespace aisc::emulated_gpu {

struct Product {
  cublasLtMatmulDescOpaque_t how;
  cublasLtMatrixLayoutOpaque_t a_layout, b_layout, c_layout, d_layout;
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;
  void* d = nullptr;
  double alpha = 1;
  double beta = 0;

  bool is_f8() const;  // A and B, or one of them
  bool has_bias() const;
  bool has_aux() const;  // input of GELU: written, or read
};

// d = epilogue(alpha op(a) op(b) + beta c), for all products of a batch. Operands of F8 are their
// codes times a scale.
void multiply(const Product& product);

}  // namespace aisc::emulated_gpu
