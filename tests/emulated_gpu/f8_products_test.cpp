// Products of F8 by cublasLtMatmul of the emulated GPU: codes worked by hand, and what it refuses.
#include <cublasLt.h>
#include <gmock/gmock.h>

#include <gpu/intrinsics.h>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "emulated_gpu/gpu.h"

namespace aisc::emulated_gpu {
namespace {

using testing::HasSubstr;

struct F8Case {
  cudaDataType a = CUDA_R_8F_E4M3, b = CUDA_R_8F_E4M3, out = CUDA_R_32F;
  std::uint64_t m = 16, n = 32, k = 48;
  bool transa = true, transb = false, scales = true;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  cudaDataType_t bias = CUDA_R_16BF;
  std::int64_t more_ld = 0;
  std::ptrdiff_t shift = 0;  // of A, bytes
  std::uint32_t alignment = 16;
  float beta = 0;
};

// One call: all codes of A are `a` and of B `b`, scales are 2 and 4, C is 1.
class F8Call {
 public:
  F8Call(const F8Case& c, std::uint8_t a = 0x38, std::uint8_t b = 0x38) : case_(c) {
    cudaMalloc(&memory_, kBytes);
    const std::vector<std::uint8_t> as(kMatrix, a), bs(kMatrix, b);
    cudaMemcpy(at(0), as.data(), kMatrix, cudaMemcpyHostToDevice);
    cudaMemcpy(at(1), bs.data(), kMatrix, cudaMemcpyHostToDevice);
    const std::vector<float> ones(kMatrix / 4, 1.0f);
    cudaMemcpy(at(2), ones.data(), kMatrix, cudaMemcpyHostToDevice);
    const float scales[] = {2, 4};
    cudaMemcpy(at(3), scales, sizeof scales, cudaMemcpyHostToDevice);
  }
  ~F8Call() { cudaFree(memory_); }
  F8Call(const F8Call&) = delete;
  F8Call& operator=(const F8Call&) = delete;

  cublasStatus_t run() {
    cublasLtMatmulDesc_t how = nullptr;
    cublasLtMatmulDescCreate(&how, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
      EXPECT_EQ(cublasLtMatmulDescSetAttribute(how, attribute, &value, sizeof(value)),
                CUBLAS_STATUS_SUCCESS);
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, std::int32_t{case_.transa});
    set(CUBLASLT_MATMUL_DESC_TRANSB, std::int32_t{case_.transb});
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(case_.epilogue));
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, at(0));
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, std::int32_t{case_.bias});
    set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{0});
    if (case_.scales) {
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, at(3));
      set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, at(3) + sizeof(float));
    }
    const cublasLtMatrixLayout_t a = layout(case_.a, case_.transa ? case_.k : case_.m,
                                            case_.transa ? case_.m : case_.k),
                                 b = layout(case_.b, case_.transb ? case_.n : case_.k,
                                            case_.transb ? case_.k : case_.n),
                                 d = layout(case_.out, case_.m, case_.n);
    cublasLtHandle_t handle = nullptr;
    cublasLtCreate(&handle);
    cublasLtMatmulPreference_t preference = nullptr;
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                         &case_.alignment, sizeof case_.alignment);
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    available_ =
        cublasLtMatmulAlgoGetHeuristic(handle, how, a, b, d, d, preference, 1, &found, &count);
    const float alpha = 0.5f;
    const cublasStatus_t status =
        cublasLtMatmul(handle, how, &alpha, at(0) + case_.shift, a, at(1), b, &case_.beta, at(2), d,
                       at(2), d, nullptr, nullptr, 0, nullptr);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (auto each : {a, b, d}) cublasLtMatrixLayoutDestroy(each);
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatmulDescDestroy(how);
    cublasLtDestroy(handle);
    return status;
  }
  bool is_available() const { return available_ == CUBLAS_STATUS_SUCCESS; }
  float first() const {  // of D, in F32
    float value = 0;
    cudaMemcpy(&value, at(2), sizeof value, cudaMemcpyDeviceToHost);
    return value;
  }

 private:
  static constexpr std::size_t kMatrix = 16384, kBytes = 3 * kMatrix + 64;

  std::byte* at(std::size_t i) const { return static_cast<std::byte*>(memory_) + i * kMatrix; }
  cublasLtMatrixLayout_t layout(cudaDataType type, std::uint64_t rows,
                                std::uint64_t columns) const {
    cublasLtMatrixLayout_t result = nullptr;
    cublasLtMatrixLayoutCreate(&result, type, rows, columns,
                               static_cast<std::int64_t>(rows) + case_.more_ld);
    return result;
  }

  F8Case case_;
  void* memory_ = nullptr;
  cublasStatus_t available_ = CUBLAS_STATUS_NOT_SUPPORTED;
};

// 48 products of two equal numbers, times scales 2 and 4 and alpha 1/2.
TEST(F8Products, OfCodesByHand) {
  const auto product = [](cudaDataType a, std::uint8_t code_a, cudaDataType b,
                          std::uint8_t code_b) {
    F8Call call({.a = a, .b = b}, code_a, code_b);
    EXPECT_EQ(call.run(), CUBLAS_STATUS_SUCCESS);
    EXPECT_TRUE(call.is_available());
    return call.first() / 48 / 4;
  };
  const auto e4 = CUDA_R_8F_E4M3, e5 = CUDA_R_8F_E5M2;
  EXPECT_EQ(product(e4, 0x38, e4, 0x38), 1) << "0 0111 000: 1 in E4M3";
  EXPECT_EQ(product(e4, 0x38, e4, 0xc4), -3) << "1 1000 100: -1.5 * 2";
  EXPECT_EQ(product(e4, 0x7e, e4, 0x38), 448) << "the largest of E4M3";
  EXPECT_EQ(product(e4, 0x01, e4, 0x38), 0x1p-9f) << "its smallest";
  EXPECT_EQ(product(e4, 0x38, e5, 0x7b), 57344) << "the largest of E5M2";
  EXPECT_EQ(product(e5, 0x01, e4, 0x38), 0x1p-16f) << "its smallest";
  EXPECT_EQ(product(e5, 0x7c, e4, 0x38), INFINITY);
  EXPECT_TRUE(std::isnan(product(e4, 0x7f, e4, 0x38)));
  EXPECT_TRUE(std::isnan(product(e5, 0x7d, e4, 0x38)));
}

// The bias, in BF16, is A's memory: two codes of 1 in E4M3 are 0x3838.
TEST(F8Products, WithABias) {
  F8Call call({.scales = false, .epilogue = CUBLASLT_EPILOGUE_BIAS});
  EXPECT_EQ(call.run(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(call.first(), 24 + gpu::bf16_value(0x3838));
}

TEST(F8Products, WithoutScalesAndAddedToC) {
  F8Call plain({.scales = false});
  EXPECT_EQ(plain.run(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(plain.first(), 24);
  F8Call added({.scales = false, .beta = 3});
  EXPECT_EQ(added.run(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(added.first(), 27);
  for (const auto out : {CUDA_R_16BF, CUDA_R_16F})
    EXPECT_EQ(F8Call({.out = out}).run(), CUBLAS_STATUS_SUCCESS);
}

std::string f8_refusal(const F8Case& c) {
  testing::internal::CaptureStderr();
  F8Call call(c);
  EXPECT_NE(call.run(), CUBLAS_STATUS_SUCCESS);
  EXPECT_TRUE(c.shift != 0 || !call.is_available());
  return testing::internal::GetCapturedStderr();
}

TEST(F8Products, WhatTheLibraryRefuses) {
  EXPECT_THAT(f8_refusal({.a = CUDA_R_8F_E5M2, .b = CUDA_R_8F_E5M2}),
              HasSubstr("types of A, B, C, D: 29, 29, 0, 0"));
  EXPECT_THAT(f8_refusal({.b = CUDA_R_16BF}), HasSubstr("types of A, B, C, D: 28, 14, 0, 0"));
  EXPECT_THAT(f8_refusal({.out = CUDA_R_64F}), HasSubstr("COMPUTE_32F: types of A and D: 28, 1"));
  const auto form = HasSubstr("F8: A has to be transposed and B not");
  EXPECT_THAT(f8_refusal({.transa = false}), form);
  EXPECT_THAT(f8_refusal({.transb = true}), form);
  EXPECT_THAT(f8_refusal({.m = 24}), HasSubstr("F8: m, n, k are 24, 32, 48: not multiples of 16"));
  EXPECT_THAT(f8_refusal({.n = 8}), HasSubstr("F8: m, n, k are 16, 8, 48"));
  EXPECT_THAT(f8_refusal({.k = 40}), HasSubstr("F8: m, n, k are 16, 32, 40"));
  EXPECT_THAT(f8_refusal({.more_ld = 8}), HasSubstr("F8: leading dimension 56"));
  EXPECT_THAT(f8_refusal({.epilogue = CUBLASLT_EPILOGUE_GELU}),
              HasSubstr("F8: epilogue 32 is not emulated"));
  EXPECT_THAT(f8_refusal({.epilogue = CUBLASLT_EPILOGUE_BIAS, .bias = CUDA_R_32F}),
              HasSubstr("F8: bias of type 0, expected 14"));
  EXPECT_THAT(f8_refusal({.shift = 8}), HasSubstr("F8: a matrix that is not aligned to 16 bytes"));
  EXPECT_THAT(f8_refusal({.a = CUDA_R_16BF, .b = CUDA_R_16BF}),
              HasSubstr("a scale of A or B, which are not F8"));
  F8Call unaligned({.alignment = 8});
  EXPECT_EQ(unaligned.run(), CUBLAS_STATUS_SUCCESS);
  EXPECT_FALSE(unaligned.is_available()) << "whoever promises only 8 bytes is offered nothing";
}

}  // namespace
}  // namespace aisc::emulated_gpu
