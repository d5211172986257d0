// The product of one row with a transposed matrix, as each step of generation has it for each
// weight: every element of the matrix is used once, so that the time is that of reading it, in its
// own type and in order. Packing or widening the matrix first takes 1.5 to 8 times as long.
#include "common/ops/cpu/parallel.h"
#include "common/ops/cpu/products.h"
#include "common/ops/cpu/reduce.h"
#include "common/ops/cpu/vector_math.h"

namespace aisc::cpu {
namespace {

template <class T, class Out>
void row_product_of(View out, ConstView a, ConstView b, const ops::MatmulOptions& options) {
  using S = Accumulator<T>;
  const std::int64_t N = b.shape()[-2], K = b.shape()[-1];
  const Tensor wide({K}, DTypeOf<S>::value, out.device(), Purpose::Workspace);
  S* left = wide.data<S>();
  const T *row = a.data<T>(), *matrix = b.data<T>();
  for (std::int64_t k = 0; k < K; ++k) left[k] = widen(row[k]);
  const T* bias = options.bias ? options.bias.data<T>() : nullptr;
  const S alpha = static_cast<S>(options.alpha);
  const bool accumulate = options.into == ops::Into::Accumulate;
  Out* result = out.data<Out>();
  constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(Out));
  parallel_pieces(N, K, kLine, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      const T* right = matrix + n * K;
      S sum = alpha * sum_of<S>(K, [=](std::int64_t k) { return left[k] * widen(right[k]); });
      if (bias) sum += widen(bias[n]);
      if (accumulate) sum += static_cast<S>(result[n]);
      result[n] = narrow<Out>(sum);
    }
  });
}

}  // namespace

void row_product(View out, ConstView a, ConstView b, const ops::MatmulOptions& options) {
  dispatch_or_f32(a.dtype(), out.dtype(), [&](auto type, auto out_type) {
    row_product_of<decltype(type), decltype(out_type)>(out, a, b, options);
  });
}

}  // namespace aisc::cpu
