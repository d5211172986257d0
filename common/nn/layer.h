// What every layer is: a forward that remembers what its backward needs, and that backward, written
// out. There is no autograd: what a collective becomes in the backward pass is what this course
// teaches.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/rank.h"
#include "common/core/tensor.h"
#include "common/nn/parameter.h"

namespace aisc {

class KeptBytes;      // a budget of recomputation: common/nn/kept_bytes.h
class KeyValueCache;  // of a sequence that is being generated: common/nn/key_value_cache.h

// A stack of tensors: forward pushes, backward pops. The driver owns one per micro-batch and layer,
// so that activations in flight can be counted, dropped and recomputed, or moved to the host.
class Saved {
 public:
  Saved() = default;
  static Saved nothing();  // forgets what is pushed: for evaluation, or a forward to be recomputed

  void push(Tensor tensor);
  Tensor pop();                         // throws Error when empty: a backward without its forward
  bool keeps() const { return keep_; }  // false: nothing()
  std::size_t size() const { return tensors_.size(); }
  std::span<Tensor> tensors() { return tensors_; }  // in the order in which they were pushed
  std::int64_t bytes() const;                       // of memory: a storage counts once

 private:
  friend std::int64_t bytes_of(std::span<const Saved> saved);

  bool keep_ = true;
  std::vector<Tensor> tensors_;
};

// Of all together: what one layer keeps is often what the layer before it made.
std::int64_t bytes_of(std::span<const Saved> saved);

// Weight gradients that wait to be computed: a zero-bubble pipeline runs them where it would idle.
class DeferredGrads {
 public:
  void push(std::function<void()> product) { products_.push_back(std::move(product)); }
  void run_all();  // in the order in which they came
  std::size_t size() const { return products_.size(); }

 private:
  std::vector<std::function<void()>> products_;
};

// What a decoder's layers read beside their input: its own tokens, and the encoder's output, whose
// gradient they add to.
struct SideInput {
  Tensor tokens;  // (B, T) I32
  Tensor value;   // (B, S, C)
  Tensor grad;    // of value, summed over the layers; empty until one has added to it
};

// A loss that layers add to the model's: a router's balance. Backward adds the gradients of
// factor * sum.
struct ExtraLoss {
  double factor = 0;
  double sum = 0;  // forward adds to it, unless it is repeated

  // What routers did, to be shown: of so many choices those that found no room, and of samples the
  // share of the first choices that went to the busiest expert, times the experts (1: even).
  double choices = 0, dropped = 0, samples = 0, busiest = 0;
};

// Where in the run a forward or backward happens, and what there is beside the input. Dropout draws
// by step and global position.
struct Pass {
  bool training = true;
  bool recompute = false;  // a forward that is repeated in a backward: counts nothing again
  std::uint64_t step = 0;
  int micro_batch = 0;                // of the step,
  bool last_micro_batch = true;       // after which its gradients are whole
  std::int64_t first_sample = 0;      // index of x's first row in the global batch
  ops::TokenRuns tokens = {};         // where x's tokens lie in the sequence,
  std::int64_t sequence = 0;          // which has so many where ranks share it
  double terms = 0;                   // of the loss, in the global batch (SampleSource::terms)
  ConstView key_lengths = {};         // (B) I32: keys from there on are padding; empty: none is
  ConstView segments = {};            // (B, T) I32: which text of a pair x's tokens are of
  ConstView picked = {};              // Batch::picked
  DeferredGrads* deferred = nullptr;  // null: weight gradients are computed at once
  KeptBytes* kept = nullptr;          // what recomputed layers may keep nevertheless; null: nothing
  KeyValueCache* cache = nullptr;     // null: all tokens of the sequence are in x
  SideInput* side = nullptr;
  ExtraLoss* extra = nullptr;
};

class Layer {
 public:
  Layer(const Rank& rank, std::string name) : rank_(rank), name_(std::move(name)) {}
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
  virtual ~Layer() = default;

  virtual Tensor forward(Tensor x, Saved& saved, const Pass& pass) const = 0;
  // Returns dx and adds to the gradients of the layer's parameters. Pops what forward pushed.
  virtual Tensor backward(Tensor dy, Saved& saved, const Pass& pass) = 0;
  virtual std::vector<Parameter*> parameters() { return {}; }
  // Those of other layers that it reads and adds gradients to: the tied head's table.
  virtual std::vector<Parameter*> borrows() { return {}; }
  // What is gathered and freed together: all of it, unless layers of their own are in it.
  virtual std::vector<Unit> units();

  const std::string& name() const { return name_; }  // "blocks.3": its parameters' begin with it

 protected:
  Rank rank_;
  std::string name_;
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
