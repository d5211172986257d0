#include "06_tensor_parallel/linear_products.h"

#include <fmt/format.h>

#include "common/core/error.h"

namespace aisc {

std::int64_t even_share(const Communicator& tp, std::string_view layer, std::string_view what,
                        std::int64_t count) {
  if (count % tp.size() != 0)
    fail(fmt::format("{}: {} {} over {} ranks of {}: expected a multiple of {}", layer, count, what,
                     tp.size(), tp.name(), tp.size()));
  return count / tp.size();
}

Tensor product(const Tensor& x, const Parameter& weight, const ProductOptions& options) {
  Tensor y(x.shape().with(-1, weight.shape[0]), x.dtype(), x.device());  // (..., O)
  const View z = options.before_gelu;                                    // (..., O)
  ops::matmul(as_rows(y), as_rows(x), weight.value(),
              {.transpose = ops::Transpose::Second,
               .bias = options.bias,
               .before_gelu = z ? z.reshaped(as_rows(y).shape()) : View()});
  return y;
}

Tensor input_grad(const Tensor& dy, const Parameter& weight, const Tensor& z) {
  Tensor dx(dy.shape().with(-1, weight.shape[1]), dy.dtype(), dy.device());  // (..., I)
  ops::matmul(as_rows(dx), as_rows(dy), weight.value(), {.gelu_of = z ? as_rows(z) : View()});
  return dx;
}

void bias_grad(const Rank& rank, Parameter& bias, const Tensor& dy) {
  const auto span = rank.trace.span("bias", bias.name);
  ops::add_bias_backward(bias.grad(), as_rows(dy), bias.next_grad());
}

void wait_for(const Rank& rank, Work& work, const std::string& name) {
  const auto span = rank.trace.span("communication", name);
  work.wait();
}

}  // namespace aisc
