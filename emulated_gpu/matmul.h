// What cublasLtMatmul is asked for, checked and in one piece, and the loops that compute it.
#pragma once

#include <cublasLt.h>

#include <string>

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

  bool has_bias() const;           // is added, or is the output of a bias gradient
  bool has_aux() const;            // input of GELU: written, or read
  std::int64_t bias_size() const;  // elements, of one product of the batch
};

// Why the library would not take descriptors like these; empty: it would.
std::string find_error(const Product& product);

// d = epilogue(alpha op(a) op(b) + beta c), for all products of a batch.
void multiply(const Product& product);

std::size_t bytes_of(std::int32_t type);
// Bytes from the first to the last element of all matrices of a batch.
std::size_t extent_bytes(const cublasLtMatrixLayoutOpaque_t& layout);

}  // namespace aisc::emulated_gpu
