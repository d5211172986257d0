#include "common/nn/layer.h"

#include <memory>
#include <set>
#include <utility>

#include "common/core/error.h"

namespace aisc {

Saved Saved::nothing() {
  Saved saved;
  saved.keep_ = false;
  return saved;
}

void Saved::push(Tensor tensor) {
  if (keep_) tensors_.push_back(std::move(tensor));
}

Tensor Saved::pop() {
  if (tensors_.empty()) fail("Saved: nothing left to pop: a backward ran without its forward");
  Tensor tensor = std::move(tensors_.back());
  tensors_.pop_back();
  return tensor;
}

std::int64_t Saved::bytes() const { return bytes_of({this, 1}); }

std::int64_t bytes_of(std::span<const Saved> saved) {
  std::set<const void*> counted;
  std::int64_t bytes = 0;
  for (const Saved& each : saved)
    for (const Tensor& tensor : each.tensors_)
      if (counted.insert(tensor.view().raw()).second)
        bytes += static_cast<std::int64_t>(tensor.bytes());
  return bytes;
}

void DeferredGrads::run_all() {
  for (const auto& product : std::exchange(products_, {})) product();
}

std::vector<Unit> Layer::units() {
  std::vector<Parameter*> all = parameters();
  return all.empty() ? std::vector<Unit>() : std::vector<Unit>{{name_, std::move(all)}};
}

Tensor output_like(const Tensor& x) {
  return x.owners() == 1 ? x.share() : Tensor(x.shape(), x.dtype(), x.device());
}

void weight_grad(const Pass& pass, Parameter& weight, Tensor dy, Tensor x) {
  const auto product = [&weight](const Tensor& left, const Tensor& right) {
    ops::matmul(weight.grad(), as_rows(left), as_rows(right),
                {.transpose = ops::Transpose::First, .into = weight.next_grad()});
  };
  if (!pass.deferred) return product(dy, x);
  // A std::function is copied, so the shares that it holds sit behind a shared pointer.
  auto held = std::make_shared<std::pair<Tensor, Tensor>>(std::move(dy), std::move(x));
  pass.deferred->push([product, held] { product(held->first, held->second); });
}

}  // namespace aisc
