// Products in F32 (F64 of F64), their operands widened first.
#include "emulated_gpu/matmul.h"

#include <gpu/intrinsics.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace aisc::emulated_gpu {
namespace {

float f8_value(std::uint8_t code, bool e5m2) {
  const int mantissa_bits = e5m2 ? 2 : 3, bias = e5m2 ? 15 : 7;
  const int exponent = (code & 0x7f) >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
  const float sign = code & 0x80 ? -1.0f : 1.0f;
  if (e5m2 ? exponent == 31 : (code & 0x7f) == 0x7f)
    return e5m2 && mantissa == 0 ? sign * INFINITY : NAN;
  const int steps = exponent > 0 ? mantissa + (1 << mantissa_bits) : mantissa;
  return sign * std::ldexp(static_cast<float>(steps), std::max(exponent, 1) - bias - mantissa_bits);
}

template <class T>
T load(const void* base, std::int32_t type, std::int64_t i) {
  switch (type) {
    case CUDA_R_64F:
      return static_cast<T>(static_cast<const double*>(base)[i]);
    case CUDA_R_32F:
      return static_cast<T>(static_cast<const float*>(base)[i]);
    case CUDA_R_16BF:
      return gpu::bf16_value(static_cast<const std::uint16_t*>(base)[i]);
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2:
      return f8_value(static_cast<const std::uint8_t*>(base)[i], type == CUDA_R_8F_E5M2);
    default:
      return gpu::f16_value(static_cast<const std::uint16_t*>(base)[i]);
  }
}

template <class T>
void store(void* base, std::int32_t type, std::int64_t i, T value) {
  switch (type) {
    case CUDA_R_64F:
      static_cast<double*>(base)[i] = static_cast<double>(value);
      return;
    case CUDA_R_32F:
      static_cast<float*>(base)[i] = static_cast<float>(value);
      return;
    case CUDA_R_16BF:
      static_cast<std::uint16_t*>(base)[i] = gpu::bf16_bits(static_cast<float>(value));
      return;
    default:
      static_cast<std::uint16_t*>(base)[i] = gpu::f16_bits(static_cast<float>(value));
  }
}

std::int64_t index(const cublasLtMatrixLayoutOpaque_t& layout, std::int64_t batch, std::int64_t row,
                   std::int64_t column) {
  const std::int64_t within =
      layout.order == CUBLASLT_ORDER_COL ? row + column * layout.ld : row * layout.ld + column;
  return batch * layout.batch_stride + within;
}

// op(matrix), (rows, columns), row by row.
template <class T>
std::vector<T> widened(const void* data, const cublasLtMatrixLayoutOpaque_t& layout,
                       std::int64_t batch, std::int32_t transposed) {
  const auto stored_rows = static_cast<std::int64_t>(layout.rows);
  const auto stored_columns = static_cast<std::int64_t>(layout.cols);
  const std::int64_t rows = transposed ? stored_columns : stored_rows;
  const std::int64_t columns = transposed ? stored_rows : stored_columns;
  std::vector<T> values(static_cast<std::size_t>(rows * columns));
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      values[static_cast<std::size_t>(i * columns + j)] = load<T>(
          data, layout.type, transposed ? index(layout, batch, j, i) : index(layout, batch, i, j));
  return values;
}

// c (m, n) = a (m, k) b (k, n), by blocks of b that stay in the cache.
template <class T>
std::vector<T> product_of(const std::vector<T>& a, const std::vector<T>& b, std::int64_t m,
                          std::int64_t n, std::int64_t k) {
  constexpr std::int64_t kDepth = 128;
  constexpr std::int64_t kWidth = 256;
  std::vector<T> c(static_cast<std::size_t>(m * n));
  for (std::int64_t first_k = 0; first_k < k; first_k += kDepth)
    for (std::int64_t first_j = 0; first_j < n; first_j += kWidth)
      for (std::int64_t i = 0; i < m; ++i) {
        const std::int64_t width = std::min(kWidth, n - first_j);
        T* row = c.data() + i * n + first_j;
        for (std::int64_t p = first_k; p < std::min(k, first_k + kDepth); ++p) {
          const T factor = a[static_cast<std::size_t>(i * k + p)];
          const T* other = b.data() + p * n + first_j;
          for (std::int64_t j = 0; j < width; ++j) row[j] += factor * other[j];
        }
      }
  return c;
}

// GELU in its tanh form: x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3).
constexpr double kRootTwoOverPi = 0.79788456080286535588;
template <class T>
T gelu(T x) {
  const T u = static_cast<T>(kRootTwoOverPi) * (x + T(0.044715) * x * x * x);
  return x / 2 * (1 + std::tanh(u));
}
template <class T>
T gelu_slope(T x) {
  const T t = std::tanh(static_cast<T>(kRootTwoOverPi) * (x + T(0.044715) * x * x * x));
  const T du = static_cast<T>(kRootTwoOverPi) * (1 + T(3 * 0.044715) * x * x);
  return (1 + t) / 2 + x / 2 * (1 - t * t) * du;
}

template <class T>
void multiply_one(const Product& product, std::int64_t batch) {
  const auto& how = product.how;
  const auto m = static_cast<std::int64_t>(product.d_layout.rows);
  const auto n = static_cast<std::int64_t>(product.d_layout.cols);
  const auto k =
      static_cast<std::int64_t>(how.transa ? product.a_layout.rows : product.a_layout.cols);
  const auto a = widened<T>(product.a, product.a_layout, batch, how.transa);
  const auto b = widened<T>(product.b, product.b_layout, batch, how.transb);
  const auto sums = product_of(a, b, m, n, k);
  T factor = static_cast<T>(product.alpha);
  for (const void* scale : {how.a_scale, how.b_scale})
    if (scale) factor *= static_cast<T>(*static_cast<const float*>(scale));

  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      T value = factor * sums[static_cast<std::size_t>(i * n + j)];
      if (product.beta != 0)
        value += static_cast<T>(product.beta) *
                 load<T>(product.c, product.c_layout.type, index(product.c_layout, batch, i, j));
      if (product.has_bias()) value += load<T>(how.bias, how.bias_type, i);
      const std::int64_t aux = batch * how.aux_batch_stride + i + j * how.aux_ld;
      if (how.epilogue == CUBLASLT_EPILOGUE_DGELU)
        value *= gelu_slope(load<T>(how.aux, product.d_layout.type, aux));
      else if (product.has_aux())
        store(how.aux, product.d_layout.type, aux, value);
      if (how.epilogue & CUBLASLT_EPILOGUE_GELU) value = gelu(value);
      store(product.d, product.d_layout.type, index(product.d_layout, batch, i, j), value);
    }
}

}  // namespace

void multiply(const Product& product) {
  for (std::int64_t batch = 0; batch < product.d_layout.batch_count; ++batch) {
    if (product.how.scale_type == CUDA_R_64F)
      multiply_one<double>(product, batch);
    else
      multiply_one<float>(product, batch);
  }
}

}  // namespace aisc::emulated_gpu
