// Products of F8 by cuBLASLt. It knows matrices by columns: out = a b^T of rows is for it
// out^T = b a^T, with b (N, K) a matrix (K, N) that it is to transpose and a (M, K) a matrix (K, M)
// that it takes as it is. On compute capability 8.9 and 9.0 it has F8 in no other form ("TN"): the
// instructions of these tensor cores read both operands along K, and those that turn a matrix as it
// is loaded are for 16 bits.
#include <cublasLt.h>
#include <fmt/format.h>

#include <map>
#include <memory>
#include <utility>

#include "10_model_compression/more/eight_bits_gpu.h"
#include "common/core/cuda/cuda_device.h"
#include "common/core/error.h"

namespace aisc::f8_gpu {
namespace {

constexpr std::uint64_t kWorkspaceBytes = 32 << 20;  // at most; NVIDIA's advice for Hopper
constexpr std::uint32_t kAlignment = 16;             // bytes, of every matrix

void check_f8(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail(fmt::format("f8_matmul: cuBLASLt: {}: {}", what, cublasLtGetStatusString(status)));
}

cudaDataType_t type_of(const NumberFormat& format) {
  return format.infinity ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3;
}

struct F8Key {
  std::int64_t M, N, K;
  cudaDataType_t a, b, out;
  bool has_bias;
  auto operator<=>(const F8Key&) const = default;
};

template <class T>
struct Destroyed {
  cublasStatus_t (*destroy)(T*);
  void operator()(T* object) const { destroy(object); }
};
template <class Pointer>
using Handle =
    std::unique_ptr<std::remove_pointer_t<Pointer>, Destroyed<std::remove_pointer_t<Pointer>>>;

using Layout = Handle<cublasLtMatrixLayout_t>;
Layout make_layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_f8(cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(columns),
                                      static_cast<std::uint64_t>(rows), columns),
           "describing a matrix");
  return {layout, {cublasLtMatrixLayoutDestroy}};
}

struct F8Plan {
  Handle<cublasLtMatmulDesc_t> description;
  Layout a, b, out;
  cublasLtMatmulHeuristicResult_t way{};
  bool exists = false;

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    check_f8(cublasLtMatmulDescSetAttribute(description.get(), attribute, &value, sizeof value),
             "describing a product");
  }
  // The scales of this call, in the GPU's memory: nobody has to wait for them here.
  void point(const F8Tensor& of_a, const F8Tensor& of_b, const ConstView& bias) {
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, of_b.scales.view().raw());  // its A is our b
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, of_a.scales.view().raw());
    if (bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.raw());
  }
};

F8Plan make_plan(cublasLtHandle_t handle, const F8Key& key, const F8Tensor& a, const F8Tensor& b,
                 const ConstView& bias) {
  F8Plan plan;
  cublasLtMatmulDesc_t description = nullptr;
  check_f8(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F),
           "describing a product");
  plan.description = {description, {cublasLtMatmulDescDestroy}};
  plan.set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  plan.set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  // Hopper's tensor cores add products of F8 with fewer bits than F32 has. Fast, they add all terms
  // so, and sums of thousands lose digits that training misses (DeepSeek-V3, section 3.3.2:
  // relative errors of up to nearly 2 % at K = 4,096). Not fast, they hand what they have to F32
  // registers every so many terms, which costs some of the speed.
  plan.set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{0});
  plan.a = make_layout(key.a, key.M, key.K);
  plan.b = make_layout(key.b, key.N, key.K);
  plan.out = make_layout(key.out, key.M, key.N);
  if (bias) {
    plan.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    plan.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_16BF);
  }
  plan.point(a, b, bias);  // the heuristic looks at them, too

  cublasLtMatmulPreference_t made = nullptr;
  check_f8(cublasLtMatmulPreferenceCreate(&made), "describing a product");
  const Handle<cublasLtMatmulPreference_t> preference{made, {cublasLtMatmulPreferenceDestroy}};
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check_f8(cublasLtMatmulPreferenceSetAttribute(made, attribute, &value, sizeof value),
             "describing a product");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    prefer(attribute, kAlignment);
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle, description, plan.b.get(), plan.a.get(),
                                     plan.out.get(), plan.out.get(), made, 1, &plan.way, &found);
  // NOT_SUPPORTED on a GPU without F8; INVALID_VALUE for types that never meet, as two of E5M2.
  plan.exists =
      status == CUBLAS_STATUS_SUCCESS && found > 0 && plan.way.state == CUBLAS_STATUS_SUCCESS;
  return plan;
}

// What a device keeps of cuBLASLt for F8: found through Device::extension.
class F8Products {
 public:
  F8Products() {
    cublasLtHandle_t handle = nullptr;
    check_f8(cublasLtCreate(&handle), "starting");
    handle_ = {handle, {cublasLtDestroy}};
  }

  bool multiply(const View& out, const F8Tensor& a, const F8Tensor& b, ops::Into into,
                const ConstView& bias) {
    const F8Key key{a.codes.shape()[0], b.codes.shape()[0],
                    a.codes.shape()[1], type_of(a.format),
                    type_of(b.format),  out.dtype() == DType::F32 ? CUDA_R_32F : CUDA_R_16BF,
                    bool{bias}};
    auto found = plans_.find(key);
    if (found == plans_.end())
      found = plans_.emplace(key, make_plan(handle_.get(), key, a, b, bias)).first;
    F8Plan& plan = found->second;
    if (!plan.exists) return false;
    plan.point(a, b, bias);
    const float alpha = 1, beta = into == ops::Into::Accumulate ? 1 : 0;
    const Tensor workspace({static_cast<std::int64_t>(plan.way.workspaceSize)}, DType::U8,
                           out.device(), Purpose::Workspace);
    const cublasStatus_t status = cublasLtMatmul(
        handle_.get(), plan.description.get(), &alpha, b.codes.view().raw(), plan.b.get(),
        a.codes.view().raw(), plan.a.get(), &beta, out.raw(), plan.out.get(), out.raw(),
        plan.out.get(), &plan.way.algo, workspace.view().raw(), plan.way.workspaceSize,
        as_cuda(out.device()).stream());
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return plan.exists = false;
    check_f8(status, "a product");
    return true;
  }

 private:
  Handle<cublasLtHandle_t> handle_;
  std::map<F8Key, F8Plan> plans_;
};

}  // namespace

bool multiply(View out, const F8Tensor& a, const F8Tensor& b, ops::Into into, ConstView bias) {
  const std::int64_t sizes[] = {a.codes.shape()[0], b.codes.shape()[0], a.codes.shape()[1]};
  for (const std::int64_t size : sizes)
    if (size % kAlignment != 0) return false;
  const void* const places[] = {out.raw(), a.codes.view().raw(), b.codes.view().raw(), bias.raw()};
  for (const void* place : places)
    if (reinterpret_cast<std::uintptr_t>(place) % kAlignment != 0) return false;
  as_cuda(out.device()).stream();  // makes the device current, for the library to begin on
  return out.device().extension<F8Products>().multiply(out, a, b, into, bias);
}

}  // namespace aisc::f8_gpu
