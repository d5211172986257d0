// Products by oneDNN, version 2 or 3: the differences between the two are in this file.
//
// A primitive run by two threads with its default scratchpad gives wrong numbers, silently. So the
// scratchpad is the caller's (taken from the device), and primitives are cached per device: one
// rank's are never run by another. The cache's key holds the number of threads, for which a
// primitive is made.
#include <omp.h>

#include <cstring>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>

#include "common/core/system/machine.h"
#include "common/ops/cpu/kernels.h"
#include "common/ops/cpu/products.h"

namespace aisc::cpu {
namespace {

using dnnl::memory;

memory::data_type library_type(DType dtype) {
  return dtype == DType::BF16 ? memory::data_type::bf16 : memory::data_type::f32;
}

struct ProductKey {
  std::int64_t batch, M, N, K;
  ops::Transpose transpose;
  std::int64_t right_row;  // elements from one row of the right factor's memory to the next
  DType in, out;
  bool accumulate, bias;
  float alpha;
  int threads;
  auto operator<=>(const ProductKey&) const = default;
};

struct Product {
  memory::desc left, right, bias, out, scratch;
  dnnl::matmul primitive;
  std::string kernel;  // the library's name for what it runs
};

// Rows that lie a multiple of half a page apart share a few sets of the cache, and reading down a
// column then misses it: with 3072 columns of F32 (three pages) products run at half their speed.
constexpr std::int64_t kPageBytes = 4096, kLineBytes = 64, kRowsWorthACopy = 64;

bool rows_collide(std::int64_t columns, DType dtype, std::int64_t distance) {
  return columns * static_cast<std::int64_t>(size_of(dtype)) % distance == 0;
}

// How far apart the rows of the right factor should be. It is read down its columns unless it is
// transposed; where that hurts, its rows are spread by one cache line in a copy, which costs far
// less than it brings where many rows of the left factor use it.
std::int64_t right_row(const ProductSizes& size, ops::Transpose transpose, DType dtype) {
  if (transpose == ops::Transpose::Second) return size.K;
  const bool spread =
      rows_collide(size.N, dtype, kPageBytes) && size.batch == 1 && size.M >= kRowsWorthACopy;
  return size.N + (spread ? kLineBytes / static_cast<std::int64_t>(size_of(dtype)) : 0);
}

// x (rows, N) copied into rows of `columns` elements; what is behind them is never read.
Tensor spread_rows(const ConstView& x, std::int64_t columns) {
  Tensor spread({x.shape()[0], columns}, x.dtype(), x.device(), Purpose::Workspace);
  const std::size_t element = size_of(x.dtype()),
                    row = x.bytes() / static_cast<std::size_t>(x.shape()[0]);
  const auto* from = static_cast<const std::byte*>(x.raw());
  auto* to = static_cast<std::byte*>(spread.view().raw());
#pragma omp parallel for
  for (std::int64_t i = 0; i < x.shape()[0]; ++i)
    std::memcpy(to + static_cast<std::size_t>(i * columns) * element,
                from + static_cast<std::size_t>(i) * row, row);
  return spread;
}

// A row-major factor (batch, rows, columns), or the same memory seen transposed: then `rows` and
// `columns` are those of the view. `row` is the distance of the rows in memory.
memory::desc describe(std::int64_t batch, std::int64_t rows, std::int64_t columns, bool transposed,
                      std::int64_t row, memory::data_type type) {
  const memory::dims strides = transposed ? memory::dims{1, row} : memory::dims{row, 1};
  if (batch == 1) return {{rows, columns}, type, strides};
  return {{batch, rows, columns}, type, {rows * columns, strides[0], strides[1]}};
}

Product make_product(const ProductKey& key, const dnnl::engine& engine) {
  const auto in = library_type(key.in), out = library_type(key.out);
  Product p;
  const bool first = key.transpose == ops::Transpose::First;
  const bool second = key.transpose == ops::Transpose::Second;
  p.left = describe(key.batch, key.M, key.K, first, first ? key.M : key.K, in);
  p.right = describe(key.batch, key.K, key.N, second, key.right_row, in);
  p.out = describe(key.batch, key.M, key.N, false, key.N, out);
  if (key.bias && key.batch == 1) p.bias = describe(1, 1, key.N, false, key.N, in);
  if (key.bias && key.batch != 1) p.bias = {{1, 1, key.N}, in, memory::dims{key.N, key.N, 1}};

  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops after;
#if DNNL_VERSION_MAJOR >= 3
  if (key.alpha != 1) after.append_eltwise(dnnl::algorithm::eltwise_linear, key.alpha, 0.0f);
#else
  if (key.alpha != 1) after.append_eltwise(1.0f, dnnl::algorithm::eltwise_linear, key.alpha, 0.0f);
#endif
  if (key.accumulate) after.append_sum(1.0f);
  attributes.set_post_ops(after);

#if DNNL_VERSION_MAJOR >= 3
  const auto description =
      key.bias ? dnnl::matmul::primitive_desc(engine, p.left, p.right, p.bias, p.out, attributes)
               : dnnl::matmul::primitive_desc(engine, p.left, p.right, p.out, attributes);
#else
  const auto operation = key.bias ? dnnl::matmul::desc(p.left, p.right, p.bias, p.out)
                                  : dnnl::matmul::desc(p.left, p.right, p.out);
  const dnnl::matmul::primitive_desc description(operation, attributes, engine);
#endif
  p.scratch = description.scratchpad_desc();
  p.primitive = dnnl::matmul(description);
  p.kernel = description.impl_info_str();
  return p;
}

#if defined(__aarch64__)
constexpr bool kOnArm = true;
#else
constexpr bool kOnArm = false;
#endif

// On ARM the library's fast products are for SVE or by Arm's Compute Library. A build that has
// neither, as Debian's, takes five times as many instructions as plain_product (docs/machines.md).
bool f32_is_fast(const dnnl::engine& engine) {
  if (!kOnArm) return true;
  const ProductKey key{.batch = 1,
                       .M = 64,
                       .N = 64,
                       .K = 64,
                       .transpose = ops::Transpose::None,
                       .right_row = 64,
                       .in = DType::F32,
                       .out = DType::F32,
                       .accumulate = false,
                       .bias = false,
                       .alpha = 1,
                       .threads = 1};
  const std::string kernel = make_product(key, engine).kernel;
  return kernel.find("sve") != std::string::npos || kernel.find("acl") != std::string::npos;
}

// What a device keeps of oneDNN: found through Device::extension.
struct Library {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<ProductKey, Product> products;
  const bool has_f32 = f32_is_fast(engine);
  // Where there is a matrix instruction of ARM's, the library may have nothing for BF16.
  const bool bf16_is_fast = bf16_dot_is_fast() && !runs_matrix_product();
};

// F32 without a bias: the library's sgemm packs both factors and is then faster than its primitive.
// (On ARM it is the primitive whose kernel was asked for.)
void gemm(View out, ConstView a, ConstView b, std::int64_t row, const ProductSizes& size,
          const ops::MatmulOptions& options) {
  const bool first = options.transpose == ops::Transpose::First;
  const bool second = options.transpose == ops::Transpose::Second;
  const float beta = options.into == ops::Into::Accumulate ? 1.0f : 0.0f;
  const dnnl_status_t status =
      dnnl_sgemm(first ? 'T' : 'N', second ? 'T' : 'N', size.M, size.N, size.K,
                 static_cast<float>(options.alpha), a.data<float>(), first ? size.M : size.K,
                 b.data<float>(), row, beta, out.data<float>(), size.N);
  if (status != dnnl_success)
    fail("matmul: oneDNN's sgemm failed, status " + std::to_string(status));
}

void run(Library& library, View out, ConstView a, ConstView b, const ops::MatmulOptions& options) {
  const ProductSizes size(out, a, options.transpose);
  const std::int64_t row = right_row(size, options.transpose, a.dtype());
  Tensor spread;
  if (row != b.shape()[-1]) b = spread = spread_rows(b, row);
  // sgemm reads a left factor whose rows collide badly; the primitive copies it first.
  const bool primitive = kOnArm || a.dtype() != DType::F32 || size.batch > 1 || options.bias ||
                         rows_collide(a.shape()[-1], a.dtype(), kPageBytes / 2);
  if (!primitive) return gemm(out, a, b, row, size, options);

  const ProductKey key{size.batch,
                       size.M,
                       size.N,
                       size.K,
                       options.transpose,
                       row,
                       a.dtype(),
                       out.dtype(),
                       options.into == ops::Into::Accumulate,
                       static_cast<bool>(options.bias),
                       static_cast<float>(options.alpha),
                       omp_get_max_threads()};
  auto found = library.products.find(key);
  if (found == library.products.end())
    found = library.products.emplace(key, make_product(key, library.engine)).first;
  const Product& p = found->second;

  const auto bytes = static_cast<std::int64_t>(p.scratch.get_size());
  const Tensor scratch({bytes}, DType::U8, out.device(), Purpose::Workspace);
  const auto wrap = [&](const memory::desc& desc, const void* data) {
    return memory(desc, library.engine, const_cast<void*>(data));
  };
  std::unordered_map<int, memory> arguments{
      {DNNL_ARG_SRC, wrap(p.left, a.raw())},
      {DNNL_ARG_WEIGHTS, wrap(p.right, b.raw())},
      {DNNL_ARG_DST, wrap(p.out, out.raw())},
      {DNNL_ARG_SCRATCHPAD, wrap(p.scratch, scratch.data<std::uint8_t>())}};
  if (key.bias) arguments.emplace(DNNL_ARG_BIAS, wrap(p.bias, options.bias.raw()));
  p.primitive.execute(library.stream, arguments);
  library.stream.wait();
}

}  // namespace

bool library_has_f32(Device& device) { return !kOnArm || device.extension<Library>().has_f32; }

void library_product(View out, ConstView a, ConstView b, const ops::MatmulOptions& options) {
  Library& library = out.device().extension<Library>();
  // The library would scale the bias, too; adding it afterwards would round twice. It is rare.
  if (options.bias && options.alpha != 1) return plain_product(out, a, b, options);
  const bool widen = a.dtype() == DType::F16 || (a.dtype() == DType::BF16 && !library.bf16_is_fast);
  if (widen) return widened_product(out, a, b, options);
  try {
    run(library, out, a, b, options);
  } catch (const dnnl::error& e) {
    fail(std::string("matmul: oneDNN: ") + e.what());
  }
}

}  // namespace aisc::cpu
