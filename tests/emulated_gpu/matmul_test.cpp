// cublasLtMatmul of the emulated GPU against sums written out in F64.
#include <cublasLt.h>
#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "emulated_gpu/gpu.h"

namespace aisc::emulated_gpu {
namespace {

using testing::HasSubstr;

// Numbers in memory as one of the library's types.
class Buffer {
 public:
  Buffer(cudaDataType type, std::size_t count, unsigned seed) : type_(type), count_(count) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> between(-1, 1);
    cudaMalloc(&data_, count * bytes_of());
    std::vector<double> values(count);
    for (double& value : values) value = between(random);
    write(values);
  }
  ~Buffer() { cudaFree(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return data_; }
  cudaDataType type() const { return type_; }

  std::vector<double> values() const {
    std::vector<std::byte> bytes(count_ * bytes_of());
    cudaMemcpy(bytes.data(), data_, bytes.size(), cudaMemcpyDeviceToHost);
    std::vector<double> values(count_);
    for (std::size_t i = 0; i < count_; ++i) {
      const std::byte* at = bytes.data() + i * bytes_of();
      if (type_ == CUDA_R_64F) values[i] = *reinterpret_cast<const double*>(at);
      if (type_ == CUDA_R_32F) values[i] = *reinterpret_cast<const float*>(at);
      if (type_ == CUDA_R_16BF)
        values[i] = gpu::bf16_value(*reinterpret_cast<const std::uint16_t*>(at));
      if (type_ == CUDA_R_16F)
        values[i] = gpu::f16_value(*reinterpret_cast<const std::uint16_t*>(at));
    }
    return values;
  }

 private:
  std::size_t bytes_of() const { return type_ == CUDA_R_64F ? 8 : type_ == CUDA_R_32F ? 4 : 2; }
  void write(const std::vector<double>& values) {
    std::vector<std::byte> bytes(count_ * bytes_of());
    for (std::size_t i = 0; i < count_; ++i) {
      std::byte* at = bytes.data() + i * bytes_of();
      const auto single = static_cast<float>(values[i]);
      if (type_ == CUDA_R_64F) *reinterpret_cast<double*>(at) = values[i];
      if (type_ == CUDA_R_32F) *reinterpret_cast<float*>(at) = single;
      if (type_ == CUDA_R_16BF) *reinterpret_cast<std::uint16_t*>(at) = gpu::bf16_bits(single);
      if (type_ == CUDA_R_16F) *reinterpret_cast<std::uint16_t*>(at) = gpu::f16_bits(single);
    }
    cudaMemcpy(data_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice);
  }

  cudaDataType type_;
  std::size_t count_;
  void* data_ = nullptr;
};

struct Case {
  cudaDataType in = CUDA_R_32F;
  cudaDataType out = CUDA_R_32F;
  bool transa = false;
  bool transb = false;
  cublasLtOrder_t order_of_b = CUBLASLT_ORDER_COL;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  double alpha = 1;
  double beta = 0;
  int batches = 1;
  std::int64_t aux_ld = 16;
  std::int64_t extra_ld = 3;
  std::ptrdiff_t shift = 0;  // of A, bytes
};

constexpr std::int64_t kM = 11;
constexpr std::int64_t kN = 5;
constexpr std::int64_t kK = 7;

// One call of cublasLtMatmul with random matrices. Leading dimensions exceed the rows by extra_ld.
class Call {
 public:
  explicit Call(const Case& c)
      : case_(c),
        a_(c.in, 400, 1),
        b_(c.in, 400, 2),
        c_(c.out, 400, 3),
        d_(c.out, 400, 4),
        bias_(c.out, 40, 5),
        aux_(c.out, 400, 6) {}

  cublasStatus_t run() {
    const bool is_double = case_.in == CUDA_R_64F;
    cublasLtMatmulDesc_t how = nullptr;
    cublasLtMatmulDescCreate(&how, is_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                             is_double ? CUDA_R_64F : CUDA_R_32F);
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
      EXPECT_EQ(cublasLtMatmulDescSetAttribute(how, attribute, &value, sizeof(value)),
                CUBLAS_STATUS_SUCCESS);
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, std::int32_t{case_.transa});
    set(CUBLASLT_MATMUL_DESC_TRANSB, std::int32_t{case_.transb});
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(case_.epilogue));
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias_.data());
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, std::int32_t{case_.out});
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux_.data());
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, case_.aux_ld);

    cublasLtMatrixLayout_t a = layout(case_.in, case_.transa ? kK : kM, case_.transa ? kM : kK);
    cublasLtMatrixLayout_t b = layout(case_.in, case_.transb ? kN : kK, case_.transb ? kK : kN);
    cublasLtMatrixLayout_t c = layout(case_.out, kM, kN);
    cublasLtMatrixLayout_t d = layout(case_.out, kM, kN);
    if (case_.order_of_b == CUBLASLT_ORDER_ROW) {
      const std::int32_t order = CUBLASLT_ORDER_ROW;
      const std::int64_t ld = (case_.transb ? kK : kN) + case_.extra_ld;
      cublasLtMatrixLayoutSetAttribute(b, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof(order));
      cublasLtMatrixLayoutSetAttribute(b, CUBLASLT_MATRIX_LAYOUT_LD, &ld, sizeof(ld));
    }
    cublasLtHandle_t handle = nullptr;
    cublasLtCreate(&handle);
    cublasLtMatmulPreference_t preference = nullptr;
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    const auto available =
        cublasLtMatmulAlgoGetHeuristic(handle, how, a, b, c, d, preference, 1, &found, &count);
    const float alpha = static_cast<float>(case_.alpha);
    const float beta = static_cast<float>(case_.beta);
    const auto status =
        cublasLtMatmul(handle, how, is_double ? static_cast<const void*>(&case_.alpha) : &alpha,
                       static_cast<std::byte*>(a_.data()) + case_.shift, a, b_.data(), b,
                       is_double ? static_cast<const void*>(&case_.beta) : &beta, c_.data(), c,
                       d_.data(), d, &found.algo, nullptr, 0, nullptr);
    EXPECT_EQ(count, available == CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (auto each : {a, b, c, d}) cublasLtMatrixLayoutDestroy(each);
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatmulDescDestroy(how);
    cublasLtDestroy(handle);
    return status;
  }

  // Runs, and compares what was written with sums in F64.
  void check(double tolerance) {
    const auto bias = bias_.values();
    const auto aux = aux_.values();
    const auto c = c_.values();
    ASSERT_EQ(run(), CUBLAS_STATUS_SUCCESS);
    const auto d = d_.values();
    const auto aux_after = aux_.values();
    const auto epilogue = case_.epilogue;
    const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
    for (int batch = 0; batch < case_.batches; ++batch)
      for (std::int64_t i = 0; i < kM; ++i)
        for (std::int64_t j = 0; j < kN; ++j) {
          double x = 0;
          for (std::int64_t k = 0; k < kK; ++k) x += a(batch, i, k) * b(batch, k, j);
          const std::int64_t place = batch * kStride + i + j * (kM + case_.extra_ld);
          x = case_.alpha * x + case_.beta * c[at(place)];
          if (epilogue & CUBLASLT_EPILOGUE_BIAS) x += bias[at(i)];
          const std::size_t aux_place = at(i + j * case_.aux_ld);
          const bool writes_aux =
              epilogue == CUBLASLT_EPILOGUE_GELU_AUX || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
          EXPECT_NEAR(aux_after[aux_place], writes_aux ? x : aux[aux_place], tolerance);
          if (epilogue & CUBLASLT_EPILOGUE_GELU) x = gelu(x);
          if (epilogue == CUBLASLT_EPILOGUE_DGELU)
            x *= (gelu(aux[aux_place] + 1e-5) - gelu(aux[aux_place] - 1e-5)) / 2e-5;
          EXPECT_NEAR(d[at(place)], x, tolerance) << i << ", " << j << ", batch " << batch;
        }
    EXPECT_EQ(bias_.values(), bias);
  }

 private:
  static constexpr std::int64_t kStride = 200;

  static double gelu(double x) {
    return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  }
  cublasLtMatrixLayout_t layout(cudaDataType type, std::int64_t rows, std::int64_t columns) const {
    cublasLtMatrixLayout_t result = nullptr;
    cublasLtMatrixLayoutCreate(&result, type, static_cast<std::uint64_t>(rows),
                               static_cast<std::uint64_t>(columns), rows + case_.extra_ld);
    const std::int32_t count = case_.batches;
    cublasLtMatrixLayoutSetAttribute(result, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, 4);
    cublasLtMatrixLayoutSetAttribute(result, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &kStride,
                                     8);
    return result;
  }
  // op(A) and op(B).
  double a(int batch, std::int64_t i, std::int64_t k) const {
    const std::int64_t within =
        case_.transa ? k + i * (kK + case_.extra_ld) : i + k * (kM + case_.extra_ld);
    return a_values_[static_cast<std::size_t>(batch * kStride + within)];
  }
  double b(int batch, std::int64_t k, std::int64_t j) const {
    const std::int64_t row = case_.transb ? j : k;
    const std::int64_t column = case_.transb ? k : j;
    const std::int64_t rows = case_.transb ? kN : kK;
    const std::int64_t columns = case_.transb ? kK : kN;
    const std::int64_t within = case_.order_of_b == CUBLASLT_ORDER_ROW
                                    ? row * (columns + case_.extra_ld) + column
                                    : row + column * (rows + case_.extra_ld);
    return b_values_[static_cast<std::size_t>(batch * kStride + within)];
  }
  Case case_;
  Buffer a_, b_, c_, d_, bias_, aux_;
  std::vector<double> a_values_ = a_.values();
  std::vector<double> b_values_ = b_.values();
};

// One rounding of a result below 8.
constexpr double kBf16 = 8.0 / 256;
constexpr double kF16 = 8.0 / 2048;
constexpr double kF32 = 1e-5;
constexpr double kF64 = 1e-9;  // slopes are differences

TEST(Matmul, TransposedOrNotInBothOrders) {
  for (const bool transa : {false, true})
    for (const bool transb : {false, true})
      for (const auto order : {CUBLASLT_ORDER_COL, CUBLASLT_ORDER_ROW}) {
        Call({.transa = transa, .transb = transb, .order_of_b = order}).check(kF32);
        Call({.in = CUDA_R_64F,
              .out = CUDA_R_64F,
              .transa = transa,
              .transb = transb,
              .order_of_b = order,
              .alpha = -0.5,
              .beta = 2})
            .check(kF64);
      }
}

TEST(Matmul, TypesAndBatches) {
  Call({.in = CUDA_R_16BF, .out = CUDA_R_16BF, .batches = 2}).check(kBf16);
  Call({.in = CUDA_R_16F, .out = CUDA_R_16F, .beta = 1, .batches = 2}).check(kF16);
  Call({.in = CUDA_R_16BF, .out = CUDA_R_32F, .alpha = 2, .beta = 1}).check(kF32);
  Call({.in = CUDA_R_16F, .out = CUDA_R_32F, .transb = true}).check(kF32);
}

TEST(Matmul, Epilogues) {
  for (const auto epilogue :
       {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_BIAS,
        CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU}) {
    SCOPED_TRACE(epilogue);
    Call({.in = CUDA_R_64F, .out = CUDA_R_64F, .epilogue = epilogue, .beta = 1}).check(kF64);
    Call({.transa = true, .epilogue = epilogue}).check(kF32);
    Call({.in = CUDA_R_16BF, .out = CUDA_R_16BF, .transb = true, .epilogue = epilogue})
        .check(kBf16);
  }
}

// What the library answers; the call must fail.
std::string refusal(const Case& c) {
  testing::internal::CaptureStderr();
  EXPECT_NE(Call(c).run(), CUBLAS_STATUS_SUCCESS);
  return testing::internal::GetCapturedStderr();
}

TEST(Matmul, WhatTheLibraryRefuses) {
  EXPECT_THAT(refusal({.extra_ld = -1}), HasSubstr("A: leading dimension 10 < 11"));
  EXPECT_THAT(refusal({.epilogue = CUBLASLT_EPILOGUE_GELU_AUX, .aux_ld = 12}),
              HasSubstr("aux: leading dimension 12: not a multiple of 8"));
  EXPECT_THAT(refusal({.epilogue = CUBLASLT_EPILOGUE_GELU_AUX, .aux_ld = 8}),
              HasSubstr("or less than D's 11 rows"));
  EXPECT_THAT(refusal({.in = CUDA_R_32F, .out = CUDA_R_16BF}),
              HasSubstr("COMPUTE_32F: types of A and D: 0, 14"));
  EXPECT_THAT(refusal({.shift = 4}), HasSubstr("A is not aligned to 256 bytes, for which"));
  EXPECT_THAT(refusal({.epilogue = static_cast<cublasLtEpilogue_t>(7)}),
              HasSubstr("epilogue 7 is not emulated"));
}

}  // namespace
}  // namespace aisc::emulated_gpu
