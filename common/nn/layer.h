// What every layer is: a forward that remembers what its backward needs, and that backward, written
// out. There is no autograd: what a collective becomes in the backward pass is what this course
// teaches.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/comm/rank.h"
#include "common/core/tensor.h"
#include "common/nn/parameter.h"

namespace aisc {

class KeyValueCache;  // of a sequence that is being generated: common/nn/key_value_cache.h

// A stack of tensors: forward pushes, backward pops. The driver owns one per micro-batch and layer,
// so that activations in flight can be counted, dropped and recomputed, or moved to the host.
class Saved {
 public:
  Saved() = default;
  static Saved nothing();  // forgets what is pushed: for evaluation, or a forward to be recomputed

  void push(Tensor tensor);
  Tensor pop();  // throws Error when empty: a backward without its forward
  std::size_t size() const { return tensors_.size(); }
  void clear() { tensors_.clear(); }

 private:
  bool keep_ = true;
  std::vector<Tensor> tensors_;
};

// Weight gradients that wait to be computed: a zero-bubble pipeline runs them where it would idle.
class DeferredGrads {
 public:
  void push(std::function<void()> product) { products_.push_back(std::move(product)); }
  void run_all();  // in the order in which they came
  std::size_t size() const { return products_.size(); }

 private:
  std::vector<std::function<void()>> products_;
};

// Where in the run a forward or backward happens. Dropout draws by step and global position.
struct Pass {
  bool training = true;
  std::uint64_t step = 0;
  std::int64_t first_sample = 0;      // index of x's first row in the global batch
  std::int64_t first_token = 0;       // index of x's first token in the sequence
  DeferredGrads* deferred = nullptr;  // null: weight gradients are computed at once
  KeyValueCache* cache = nullptr;     // null: all tokens of the sequence are in x
};

class Layer {
 public:
  Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
  virtual ~Layer() = default;

  virtual Tensor forward(Tensor x, Saved& saved, const Pass& pass) const = 0;
  // Returns dx and adds to the gradients of the layer's parameters. Pops what forward pushed.
  virtual Tensor backward(Tensor dy, Saved& saved, const Pass& pass) = 0;
  virtual std::vector<Parameter*> parameters() { return {}; }
};

// x (..., C) seen as rows (N, C).
inline View as_rows(const Tensor& x) {
  return x.view().reshaped({x.shape().rows(), x.shape()[-1]});
}

// Where an operation that works in place may write its result: x itself if nobody else holds it, a
// new tensor of its shape otherwise.
Tensor output_like(const Tensor& x);

// weight.grad (O, I) += dy^T x, now or when pass.deferred runs.  dy (..., O), x (..., I)
void weight_grad(const Pass& pass, Parameter& weight, Tensor dy, Tensor x);

}  // namespace aisc
