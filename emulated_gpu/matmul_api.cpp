// The functions of cublasLt.h: descriptors, and what the library refuses.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "emulated_gpu/matmul.h"
#include "emulated_gpu/runtime.h"

struct cublasLtContext {
  int device;
};

namespace aisc::emulated_gpu {

namespace {

constexpr std::uint32_t kF8Alignment = 16;  // bytes, of every matrix

bool is_f8_type(std::int32_t type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }

}  // namespace

bool Product::is_f8() const { return is_f8_type(a_layout.type) || is_f8_type(b_layout.type); }
bool Product::has_bias() const { return (how.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }
bool Product::has_aux() const { return (how.epilogue & 128) != 0; }

namespace {

std::size_t bytes_of_type(std::int32_t type) {
  return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : is_f8_type(type) ? 1 : 2;
}

// Bytes from the first to the last element of all matrices of a batch.
std::size_t extent_bytes(const cublasLtMatrixLayoutOpaque_t& layout) {
  const auto rows = static_cast<std::int64_t>(layout.rows);
  const auto columns = static_cast<std::int64_t>(layout.cols);
  const std::int64_t last = layout.order == CUBLASLT_ORDER_COL
                                ? rows - 1 + (columns - 1) * layout.ld
                                : (rows - 1) * layout.ld + columns - 1;
  return static_cast<std::size_t>(last + 1 + (layout.batch_count - 1) * layout.batch_stride) *
         bytes_of_type(layout.type);
}

std::string type_error(const Product& p) {
  const auto a = p.a_layout.type;
  const auto d = p.d_layout.type;
  const auto b = p.b_layout.type;
  const bool f8 = is_f8_type(a) && is_f8_type(b) && (a == CUDA_R_8F_E4M3 || b == CUDA_R_8F_E4M3);
  if ((b != a && !f8) || (p.is_f8() && !f8) || p.c_layout.type != d)
    return fmt::format("types of A, B, C, D: {}, {}, {}, {}", a, b, p.c_layout.type, d);
  if (p.how.compute_type == CUBLAS_COMPUTE_64F)
    return a == CUDA_R_64F && d == CUDA_R_64F && p.how.scale_type == CUDA_R_64F
               ? ""
               : "COMPUTE_64F takes R_64F only";
  if (p.how.scale_type != CUDA_R_32F) return "COMPUTE_32F takes scale type R_32F only";
  const bool shorter = d == (f8 ? CUDA_R_16BF : a) || (f8 && d == CUDA_R_16F);
  if (a == CUDA_R_64F || (!shorter && d != CUDA_R_32F))
    return fmt::format("COMPUTE_32F: types of A and D: {}, {}", a, d);
  return "";
}

std::string layout_error(const char* name, const cublasLtMatrixLayoutOpaque_t& layout,
                         std::int32_t batch_count) {
  if (layout.rows == 0 || layout.cols == 0)
    return fmt::format("{} is {} x {}", name, layout.rows, layout.cols);
  const std::uint64_t least = layout.order == CUBLASLT_ORDER_COL ? layout.rows : layout.cols;
  if (layout.ld < static_cast<std::int64_t>(least))
    return fmt::format("{}: leading dimension {} < {}", name, layout.ld, least);
  if (layout.batch_count != batch_count)
    return fmt::format("{}: batch of {}, D's is {}", name, layout.batch_count, batch_count);
  return "";
}

std::string epilogue_error(const Product& p) {
  constexpr std::uint32_t kKnown[] = {CUBLASLT_EPILOGUE_DEFAULT,  CUBLASLT_EPILOGUE_BIAS,
                                      CUBLASLT_EPILOGUE_GELU,     CUBLASLT_EPILOGUE_GELU_BIAS,
                                      CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                                      CUBLASLT_EPILOGUE_DGELU};
  if (std::find(std::begin(kKnown), std::end(kKnown), p.how.epilogue) == std::end(kKnown))
    return fmt::format("epilogue {} is not emulated", p.how.epilogue);
  if (p.how.epilogue != CUBLASLT_EPILOGUE_DEFAULT && p.d_layout.order != CUBLASLT_ORDER_COL)
    return "an epilogue needs D in ORDER_COL";
  const auto d = p.d_layout.type;
  if (p.has_bias() && p.how.bias_type != d)
    return fmt::format("bias of type {}, D's is {}", p.how.bias_type, d);
  if (!p.has_aux()) return "";
  if (p.how.aux_ld % 8 != 0 || p.how.aux_ld < static_cast<std::int64_t>(p.d_layout.rows))
    return fmt::format("aux: leading dimension {}: not a multiple of 8, or less than D's {} rows",
                       p.how.aux_ld, p.d_layout.rows);
  if (p.how.aux_batch_stride % 8 != 0)
    return fmt::format("aux: batch stride {} is not a multiple of 8", p.how.aux_batch_stride);
  return "";
}

// What the tensor cores of compute capability 8.9 and 9.0 want of F8, which is also all that is
// emulated of it.
std::string f8_error(const Product& p, std::uint64_t m, std::uint64_t n, std::uint64_t k) {
  if (p.how.transa != CUBLAS_OP_T || p.how.transb != CUBLAS_OP_N ||
      p.a_layout.order != CUBLASLT_ORDER_COL || p.b_layout.order != CUBLASLT_ORDER_COL)
    return "F8: A has to be transposed and B not, both in ORDER_COL";
  if (m % 16 != 0 || n % 16 != 0 || k % 16 != 0)
    return fmt::format("F8: m, n, k are {}, {}, {}: not multiples of 16", m, n, k);
  for (const auto* layout : {&p.a_layout, &p.b_layout, &p.c_layout, &p.d_layout})
    if (layout->ld % 16 != 0)
      return fmt::format("F8: leading dimension {}: not a multiple of 16", layout->ld);
  if (p.how.epilogue != CUBLASLT_EPILOGUE_DEFAULT && p.how.epilogue != CUBLASLT_EPILOGUE_BIAS)
    return fmt::format("F8: epilogue {} is not emulated", p.how.epilogue);
  const std::int32_t bias = p.d_layout.type == CUDA_R_16F ? CUDA_R_16F : CUDA_R_16BF;
  if (p.has_bias() && p.how.bias_type != bias)
    return fmt::format("F8: bias of type {}, expected {}", p.how.bias_type, bias);
  return "";
}

// Why the library would not take descriptors like these; empty: it would.
std::string find_error(const Product& p) {
  if (std::string error = type_error(p); !error.empty()) return error;
  const struct {
    const char* name;
    const cublasLtMatrixLayoutOpaque_t& layout;
  } matrices[] = {{"A", p.a_layout}, {"B", p.b_layout}, {"C", p.c_layout}, {"D", p.d_layout}};
  for (const auto& [name, layout] : matrices)
    if (std::string error = layout_error(name, layout, p.d_layout.batch_count); !error.empty())
      return error;
  const auto m = p.how.transa ? p.a_layout.cols : p.a_layout.rows;
  const auto k = p.how.transa ? p.a_layout.rows : p.a_layout.cols;
  const auto k_b = p.how.transb ? p.b_layout.cols : p.b_layout.rows;
  const auto n = p.how.transb ? p.b_layout.rows : p.b_layout.cols;
  if (m != p.d_layout.rows || n != p.d_layout.cols || k != k_b || m != p.c_layout.rows ||
      n != p.c_layout.cols)
    return fmt::format("op(A) is {} x {}, op(B) is {} x {}, C is {} x {}, D is {} x {}", m, k, k_b,
                       n, p.c_layout.rows, p.c_layout.cols, p.d_layout.rows, p.d_layout.cols);
  if (p.is_f8()) return f8_error(p, m, n, k);
  if (p.how.a_scale || p.how.b_scale) return "a scale of A or B, which are not F8";
  return epilogue_error(p);
}

// The bias is of D's type unless another was set.
Product make_product(const cublasLtMatmulDescOpaque_t& how, const cublasLtMatrixLayoutOpaque_t& a,
                     const cublasLtMatrixLayoutOpaque_t& b, const cublasLtMatrixLayoutOpaque_t& c,
                     const cublasLtMatrixLayoutOpaque_t& d) {
  Product product{.how = how, .a_layout = a, .b_layout = b, .c_layout = c, .d_layout = d};
  if (how.bias_type < 0) product.how.bias_type = d.type;
  return product;
}

bool is_reachable(const void* address, std::size_t bytes) {
  const auto found = runtime().find(address);
  return found &&
         bytes <= found->bytes - static_cast<std::size_t>(static_cast<const std::byte*>(address) -
                                                          found->begin);
}

// Memory that the product touches and that is not a device's, or too short; empty: none.
std::string memory_error(const Product& p) {
  if (!is_reachable(p.a, extent_bytes(p.a_layout))) return "A";
  if (!is_reachable(p.b, extent_bytes(p.b_layout))) return "B";
  if (p.beta != 0 && !is_reachable(p.c, extent_bytes(p.c_layout))) return "C";
  if (!is_reachable(p.d, extent_bytes(p.d_layout))) return "D";
  if (p.has_bias() && !is_reachable(p.how.bias, p.d_layout.rows * bytes_of_type(p.how.bias_type)))
    return "bias";
  for (const void* scale : {p.how.a_scale, p.how.b_scale})
    if (scale && !is_reachable(scale, sizeof(float))) return "scale";
  const auto aux =
      static_cast<std::size_t>(static_cast<std::int64_t>(p.d_layout.rows) +
                               (static_cast<std::int64_t>(p.d_layout.cols) - 1) * p.how.aux_ld +
                               (p.d_layout.batch_count - 1) * p.how.aux_batch_stride);
  if (p.has_aux() && !is_reachable(p.how.aux, aux * bytes_of_type(p.d_layout.type))) return "aux";
  return "";
}

cublasStatus_t refuse(cublasStatus_t status, const std::string& why) {
  std::fputs(
      fmt::format("emulated GPU: cublasLtMatmul: {}: {}\n", why, cublasLtGetStatusName(status))
          .c_str(),
      stderr);
  return status;
}

template <class T>
cublasStatus_t set(T& field, const void* buffer, std::size_t bytes) {
  if (buffer == nullptr || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&field, buffer, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace
}  // namespace aisc::emulated_gpu

using namespace aisc::emulated_gpu;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* lightHandle) {
  if (lightHandle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *lightHandle = new cublasLtContext{current_device()};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t lightHandle) {
  delete lightHandle;
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "CUBLAS_STATUS of another kind";
  }
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "the library was not initialized";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "the GPU program failed to execute";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the functionality requested is not supported";
    default:
      return "unknown status";
  }
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* matmulDesc,
                                        cublasComputeType_t computeType, cudaDataType_t scaleType) {
  *matmulDesc = new cublasLtMatmulDescOpaque_t{};
  (*matmulDesc)->compute_type = computeType;
  (*matmulDesc)->scale_type = scaleType;
  (*matmulDesc)->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  (*matmulDesc)->bias_type = -1;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t matmulDesc) {
  delete matmulDesc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attr, const void* buf,
                                              std::size_t sizeInBytes) {
  switch (attr) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(desc->transa, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(desc->transb, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(desc->epilogue, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(desc->bias, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return set(desc->bias_type, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return set(desc->aux, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return set(desc->aux_ld, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
      return set(desc->aux_batch_stride, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return set(desc->a_scale, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return set(desc->b_scale, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
      return set(desc->fast_accum, buf, sizeInBytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* matLayout, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t cols, std::int64_t ld) {
  *matLayout = new cublasLtMatrixLayoutOpaque_t{type, CUBLASLT_ORDER_COL, rows, cols, ld, 1, 0};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matLayout) {
  delete matLayout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attr,
                                                const void* buf, std::size_t sizeInBytes) {
  switch (attr) {
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return set(layout->order, buf, sizeInBytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return set(layout->ld, buf, sizeInBytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return set(layout->batch_count, buf, sizeInBytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return set(layout->batch_stride, buf, sizeInBytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* pref) {
  *pref = new cublasLtMatmulPreferenceOpaque_t{{256, 256, 256, 256}};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref) {
  delete pref;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t attr,
                                                    const void* buf, std::size_t sizeInBytes) {
  if (attr >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES)
    return set(pref->alignment_bytes[attr - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], buf,
               sizeInBytes);
  return CUBLAS_STATUS_SUCCESS;  // hints, which change nothing here
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t operationDesc, cublasLtMatrixLayout_t Adesc,
    cublasLtMatrixLayout_t Bdesc, cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,
    cublasLtMatmulPreference_t preference, int requestedAlgoCount,
    cublasLtMatmulHeuristicResult_t heuristicResultsArray[], int* returnAlgoCount) {
  if (!lightHandle || !operationDesc || !Adesc || !Bdesc || !Cdesc || !Ddesc || !preference ||
      requestedAlgoCount <= 0 || !heuristicResultsArray || !returnAlgoCount)
    return CUBLAS_STATUS_INVALID_VALUE;
  *returnAlgoCount = 0;
  const Product product = make_product(*operationDesc, *Adesc, *Bdesc, *Cdesc, *Ddesc);
  const auto* alignments = preference->alignment_bytes;
  if (!find_error(product).empty() ||
      (product.is_f8() && *std::min_element(alignments, alignments + 4) < kF8Alignment))
    return CUBLAS_STATUS_NOT_SUPPORTED;  // which a program may well want to know: not reported
  heuristicResultsArray[0] = {};
  std::copy_n(preference->alignment_bytes, 4, heuristicResultsArray[0].algo.data);
  *returnAlgoCount = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t computeDesc,
                              const void* alpha, const void* A, cublasLtMatrixLayout_t Adesc,
                              const void* B, cublasLtMatrixLayout_t Bdesc, const void* beta,
                              const void* C, cublasLtMatrixLayout_t Cdesc, void* D,
                              cublasLtMatrixLayout_t Ddesc, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, std::size_t workspaceSizeInBytes,
                              cudaStream_t stream) {
  if (!lightHandle) return refuse(CUBLAS_STATUS_NOT_INITIALIZED, "no handle");
  if (!computeDesc || !alpha || !A || !Adesc || !B || !Bdesc || !beta || !C || !Cdesc || !D ||
      !Ddesc || (workspaceSizeInBytes > 0 && !workspace))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "a null pointer");
  Product product = make_product(*computeDesc, *Adesc, *Bdesc, *Cdesc, *Ddesc);
  product.a = A;
  product.b = B;
  product.c = C;
  product.d = D;
  const bool is_double = computeDesc->scale_type == CUDA_R_64F;
  product.alpha =
      is_double ? *static_cast<const double*>(alpha) : *static_cast<const float*>(alpha);
  product.beta = is_double ? *static_cast<const double*>(beta) : *static_cast<const float*>(beta);
  if (const auto error = find_error(product); !error.empty())
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, error);
  if ((product.has_bias() && !product.how.bias) || (product.has_aux() && !product.how.aux))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "no pointer to bias or aux");
  if (C == D && (Cdesc->ld != Ddesc->ld || Cdesc->order != Ddesc->order))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "C is D with another layout");
  const void* pointers[] = {A, B, C, D};
  for (int i = 0; i < 4; ++i)
    if (algo != nullptr && reinterpret_cast<std::uintptr_t>(pointers[i]) % algo->data[i] != 0)
      return refuse(CUBLAS_STATUS_INVALID_VALUE,
                    fmt::format("{} is not aligned to {} bytes, for which the algorithm was chosen",
                                "ABCD"[i], algo -> data[i]));
  for (const void* pointer : pointers)
    if (product.is_f8() && reinterpret_cast<std::uintptr_t>(pointer) % kF8Alignment != 0)
      return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "F8: a matrix that is not aligned to 16 bytes");
  CUstream_st& it = stream_of(stream);
  if (lightHandle->device != current_device() || it.device != current_device())
    return refuse(CUBLAS_STATUS_EXECUTION_FAILED,
                  fmt::format("handle of device {}, stream of device {}, current device {}",
                              lightHandle->device, it.device, current_device()));
  if (const auto matrix = memory_error(product); !matrix.empty())
    return refuse(CUBLAS_STATUS_EXECUTION_FAILED,
                  "not memory of a device, or too short: " + matrix);
  if (device_error(it.device) != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  it.enqueue({[product] {
    multiply(product);
    return cudaSuccess;
  }});
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
