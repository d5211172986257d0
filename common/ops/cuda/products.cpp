// Matrix products by cuBLASLt. It knows matrices by columns: row-major out = a b is for it
// out^T = b^T a^T, so that b is its first factor, a its second, and a vector along its rows, as its
// bias is, lies along our columns. What it can do behind a product in one pass (bias, GELU and its
// gradient) is done there; where it cannot, or not well enough, for F32 and F64, odd sizes or
// alignments, kernels follow.
//
// Sums are kept in F32 (not TF32), F64 for F64. A product that is cut along K, so that more of the
// GPU has work, is added up in that type, too, in a step of its own: `out` is rounded once, and
// once more where a bias has to follow in a kernel. Every run has the same bits, which cuBLAS
// promises for one stream and one kind of GPU. Of the algorithms that its heuristic names the first
// is taken, without measuring.
#include <cublasLt.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>

#include "common/core/cuda/cuda_device.h"
#include "common/ops/cuda/kernels.h"

namespace aisc::cuda {
namespace {

using ops::MatmulOptions;
using ops::Transpose;

constexpr std::uint64_t kWorkspaceBytes = 32 << 20;  // at most; NVIDIA's advice for Hopper
constexpr int kWays = 8;                             // that the heuristic is asked for
// What lies before or behind GELU for its gradient: cuBLASLt wants rows that are multiples of
// these.
constexpr std::int64_t kAuxiliaryColumns = 8, kAuxiliaryBytes = 16;

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail(fmt::format("matmul: cuBLASLt: {}: {}", what, cublasLtGetStatusString(status)));
}

cudaDataType_t library_type(DType dtype) {
  switch (dtype) {
    case DType::F64:
      return CUDA_R_64F;
    case DType::F32:
      return CUDA_R_32F;
    case DType::BF16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_16F;
  }
}

// The largest power of two up to 256 that the address is a multiple of.
std::uint32_t alignment_of(const void* address) {
  std::uint32_t alignment = 256;
  while (reinterpret_cast<std::uintptr_t>(address) % alignment != 0) alignment /= 2;
  return alignment;
}

// Everything that the choice of an algorithm depends on.
struct Key {
  std::int64_t batch, M, N, K;
  Transpose transpose;
  DType in, out;
  bool accumulate;
  cublasLtEpilogue_t epilogue;
  std::uint32_t a_alignment, b_alignment, out_alignment;

  auto operator<=>(const Key&) const = default;
};

cublasLtEpilogue_t epilogue_of(const MatmulOptions& options) {
  if (options.gelu_of) return CUBLASLT_EPILOGUE_DGELU;
  if (options.before_gelu)
    return options.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  return options.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

const void* auxiliary_of(const MatmulOptions& options) {
  return options.gelu_of ? options.gelu_of.raw() : options.before_gelu.raw();
}

Key key_of(const View& out, const ConstView& a, const ConstView& b, const MatmulOptions& options) {
  // What is behind the product is read and written like `out`.
  std::uint32_t out_alignment = alignment_of(out.raw());
  for (const void* beside : {options.bias.raw(), auxiliary_of(options)})
    if (beside) out_alignment = std::min(out_alignment, alignment_of(beside));
  return {.batch = out.shape().rank() == 3 ? out.shape()[0] : 1,
          .M = out.shape()[-2],
          .N = out.shape()[-1],
          .K = a.shape()[options.transpose == Transpose::First ? -2 : -1],
          .transpose = options.transpose,
          .in = a.dtype(),
          .out = out.dtype(),
          .accumulate = options.into == Into::Accumulate,
          .epilogue = epilogue_of(options),
          .a_alignment = alignment_of(a.raw()),
          .b_alignment = alignment_of(b.raw()),
          .out_alignment = out_alignment};
}

bool is_in_one_pass(const Key& key, const MatmulOptions& options) {
  if (key.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return true;
  if (key.in == DType::F64 || (options.bias && options.gelu_of)) return false;
  // The library's GELU' is right to five digits, however many the numbers have (an H200 with cuBLAS
  // 13.1).
  if (auxiliary_of(options) && key.in == DType::F32) return false;
  return !auxiliary_of(options) ||
         (key.N % kAuxiliaryColumns == 0 && key.out_alignment >= kAuxiliaryBytes);
}

// The library's objects, destroyed with their owner.
template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* object) const {
    destroy(object);
  }
};
template <class Pointer, auto destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Pointer>, Destroy<destroy>>;
using Handle = Owned<cublasLtHandle_t, cublasLtDestroy>;
using Description = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

template <class T>
void set(const Description& description, cublasLtMatmulDescAttributes_t attribute, T value) {
  check(cublasLtMatmulDescSetAttribute(description.get(), attribute, &value, sizeof(T)),
        "describing a product");
}
template <class T>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(T)),
        "describing a product");
}

// A row-major matrix (rows, columns), one of a batch of them that follow each other: for the
// library the columns are the rows.
Layout make_layout(DType dtype, std::int64_t batch, std::int64_t rows, std::int64_t columns) {
  cublasLtMatrixLayout_t layout = nullptr;
  check(
      cublasLtMatrixLayoutCreate(&layout, library_type(dtype), static_cast<std::uint64_t>(columns),
                                 static_cast<std::uint64_t>(rows), columns),
      "describing a matrix");
  Layout owned(layout);
  const auto count = static_cast<std::int32_t>(batch);
  const std::int64_t stride = rows * columns;
  check(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                         sizeof count),
        "describing a batch");
  check(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                         &stride, sizeof stride),
        "describing a batch");
  return owned;
}

Description make_description(const Key& key) {
  const bool is_f64 = key.in == DType::F64;
  cublasLtMatmulDesc_t description = nullptr;
  check(cublasLtMatmulDescCreate(&description, is_f64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                 is_f64 ? CUDA_R_64F : CUDA_R_32F),
        "describing a product");
  Description owned(description);
  set(owned, CUBLASLT_MATMUL_DESC_TRANSA,
      key.transpose == Transpose::Second ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(owned, CUBLASLT_MATMUL_DESC_TRANSB,
      key.transpose == Transpose::First ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(owned, CUBLASLT_MATMUL_DESC_EPILOGUE, key.epilogue);
  return owned;
}

// One kind of product, and the ways to compute it, best first; none where the library has none.
struct Plan {
  Description description;
  Layout a, b, out;
  std::array<cublasLtMatmulHeuristicResult_t, kWays> ways{};
  int first = 0, end = 0;
};

// Pointers of this call. The heuristic looks at them, too.
void point(Plan& plan, const Key& key, const MatmulOptions& options) {
  if (options.bias) {
    set(plan.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, options.bias.raw());
    set(plan.description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, library_type(options.bias.dtype()));
  }
  if (const void* auxiliary = auxiliary_of(options)) {
    set(plan.description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, auxiliary);
    set(plan.description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.N);
    set(plan.description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, key.M * key.N);
  }
}

Plan make_plan(cublasLtHandle_t handle, const Key& key, const MatmulOptions& options) {
  const bool a_turned = key.transpose == Transpose::First;
  const bool b_turned = key.transpose == Transpose::Second;
  Plan plan;
  plan.description = make_description(key);
  plan.a = make_layout(key.in, key.batch, a_turned ? key.K : key.M, a_turned ? key.M : key.K);
  plan.b = make_layout(key.in, key.batch, b_turned ? key.N : key.K, b_turned ? key.K : key.N);
  plan.out = make_layout(key.out, key.batch, key.M, key.N);
  point(plan, key, options);

  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "describing a product");
  const Preference owned(preference);
  set(owned, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  set(owned, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(owned, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.b_alignment);  // its A is our b
  set(owned, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.a_alignment);
  set(owned, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.out_alignment);
  set(owned, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.out_alignment);
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle, plan.description.get(), plan.b.get(), plan.a.get(), plan.out.get(), plan.out.get(),
      preference, kWays, plan.ways.data(), &plan.end);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED)
    plan.end = 0;
  else
    check(status, "choosing an algorithm");
  return plan;
}

// What a device keeps of cuBLASLt: found through Device::extension, where this device is current.
class Products {
 public:
  Products() {
    cublasLtHandle_t handle = nullptr;
    check(cublasLtCreate(&handle), "starting");
    handle_.reset(handle);
  }

  // Enqueues the product with all that belongs to it. False, and nothing done, where cuBLASLt does
  // not do this in one pass.
  bool multiply(const View& out, const ConstView& a, const ConstView& b,
                const MatmulOptions& options);

 private:
  Handle handle_;
  std::map<Key, Plan> plans_;
};

bool Products::multiply(const View& out, const ConstView& a, const ConstView& b,
                        const MatmulOptions& options) {
  const Key key = key_of(out, a, b, options);
  if (!is_in_one_pass(key, options)) return false;
  auto found = plans_.find(key);
  if (found == plans_.end())
    found = plans_.emplace(key, make_plan(handle_.get(), key, options)).first;
  Plan& plan = found->second;
  point(plan, key, options);

  const double alpha = options.alpha, beta = key.accumulate ? 1 : 0;
  const auto short_alpha = static_cast<float>(alpha), short_beta = static_cast<float>(beta);
  const bool is_f64 = key.in == DType::F64;
  for (; plan.first < plan.end; ++plan.first) {
    const cublasLtMatmulHeuristicResult_t& way = plan.ways[static_cast<std::size_t>(plan.first)];
    if (way.state != CUBLAS_STATUS_SUCCESS) continue;
    const Tensor workspace({static_cast<std::int64_t>(way.workspaceSize)}, DType::U8, out.device(),
                           Purpose::Workspace);
    const cublasStatus_t status = cublasLtMatmul(
        handle_.get(), plan.description.get(),
        is_f64 ? static_cast<const void*>(&alpha) : &short_alpha, b.raw(), plan.b.get(), a.raw(),
        plan.a.get(), is_f64 ? static_cast<const void*>(&beta) : &short_beta, out.raw(),
        plan.out.get(), out.raw(), plan.out.get(), &way.algo, workspace.view().raw(),
        way.workspaceSize, as_cuda(out.device()).stream());
    if (status == CUBLAS_STATUS_SUCCESS) return true;
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) check(status, "a product");
  }
  return false;
}

[[noreturn]] void refuse(const View& out, const ConstView& a, const ConstView& b,
                         const MatmulOptions& options) {
  static constexpr const char* kTransposed[] = {"", ", a transposed", ", b transposed"};
  fail(fmt::format("matmul: cuBLASLt has no algorithm for {} {} from {} and {} {}{}",
                   out.shape().to_string(), name_of(out.dtype()), a.shape().to_string(),
                   b.shape().to_string(), name_of(a.dtype()),
                   kTransposed[static_cast<int>(options.transpose)]));
}

}  // namespace

void matmul(View out, ConstView a, ConstView b, const ops::MatmulOptions& options) {
  if (out.count() == 0) return;
  Device& device = out.device();
  as_cuda(device).stream();  // makes the device current, for the library to begin on
  MatmulOptions with = options;
  Tensor widened;
  if (options.bias && options.bias.dtype() != out.dtype()) {
    widened = Tensor(options.bias.shape(), out.dtype(), device, Purpose::Workspace);
    cast(widened, options.bias);
    with.bias = widened;
  }
  const bool is_sum = a.count() > 0;  // of at least one term
  Products& products = device.extension<Products>();
  if (is_sum && products.multiply(out, a, b, with)) return;

  if (options.before_gelu || options.gelu_of) {
    with.before_gelu = {};
    with.gelu_of = {};
    cuda::matmul(options.before_gelu ? options.before_gelu : out, a, b, with);
    if (options.before_gelu) return cuda::gelu(out, options.before_gelu, ops::Gelu::Tanh);
    return cuda::gelu_backward(out, out, options.gelu_of, ops::Gelu::Tanh);
  }
  const ConstView bias = with.bias;
  with.bias = {};
  if (is_sum && (!bias || !products.multiply(out, a, b, with))) refuse(out, a, b, options);
  if (!is_sum && options.into == Into::Overwrite) device.zero(out);
  const View rows = out.reshaped({out.count() / out.shape()[-1], out.shape()[-1]});
  if (bias) add_bias(rows, rows, bias);
}

}  // namespace aisc::cuda
