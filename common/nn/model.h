// A model: layers in the order in which they run, and the loss at their end. No loop in it: that is
// in driver.h, and what a technique adds to the loop is a LayerHook.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "common/nn/layer.h"

namespace aisc {

// Not a Layer: it takes targets and returns a number.
class Loss {
 public:
  Loss() = default;
  Loss(const Loss&) = delete;
  Loss& operator=(const Loss&) = delete;
  virtual ~Loss() = default;

  // The sum of the losses (nats) of what the layers made of a micro-batch. The caller divides: by
  // pass.terms, those of the global batch, of which a rank or a micro-batch sees only a part.
  virtual double forward(Tensor x, const Tensor& targets, Saved& saved, const Pass& pass) const = 0;
  // The gradient of factor * (that sum) with respect to x.
  virtual Tensor backward(Saved& saved, double factor) const = 0;
  // The logits (N, V) of all classes, of the (N, ...) that the layers made here: where ranks each
  // have some classes, it gathers them, and is collective.
  virtual Tensor all_logits(Tensor logits) const { return logits; }
};

// Layers begin .. end of a model.
struct LayerRange {
  std::size_t begin = 0, end = 0;
  std::size_t count() const { return end - begin; }
};

struct Model {
  std::vector<std::unique_ptr<Layer>> layers;
  std::unique_ptr<Loss> loss;  // null where the last stage of a pipeline is not
  // Of a rank of a pipeline: the layers of each of its stages, in the stages' order. They are not
  // one after another in the whole model, whose other stages are elsewhere. Empty: a whole model.
  std::vector<LayerRange> stages = {};
  int token_parts = 1;  // a rank has one of so many parts of the tokens between two layers

  LayerRange all_layers() const { return {0, layers.size()}; }
};

// The units of all layers in forward order, with those parameters alone whose gradients add up over
// the ranks of `sync`: one ParameterStore's.
std::vector<Unit> make_units(const Model& model, Sync sync = Sync::Data);
// The units of all parameters, which are of Sync::Data from now on: of a model whose gradients no
// ranks add up.
std::vector<Unit> all_units(const Model& model);

// By layer: the units whose values it reads, its own and those that it borrows from; and those
// whose gradients are final once its backward has run, since no layer whose backward comes later
// touches them.
struct LayerUnits {
  std::vector<std::size_t> reads, completes;
};
std::vector<LayerUnits> layer_units(const Model& model, std::span<const Unit> units);

// What happens around the layers: buckets that are sent, shards that come and go, traces. Of
// several hooks the first is the outermost: "before" is called in their order, "after" in reverse.
class LayerHook {
 public:
  virtual ~LayerHook() = default;

  virtual void before_forward(std::size_t /*layer*/, const Pass& /*pass*/) {}
  // `saved` is what the layer remembers of this micro-batch: to be looked at, or moved elsewhere
  // until before_backward.
  virtual void after_forward(std::size_t /*layer*/, const Pass& /*pass*/, Saved& /*saved*/) {}
  virtual void before_backward(std::size_t /*layer*/, const Pass& /*pass*/, Saved& /*saved*/) {}
  virtual void after_backward(std::size_t /*layer*/, const Pass& /*pass*/) {}
  // Once a step for each layer, in the order of the hooks: the gradients of all parameters that are
  // final with this layer's backward (LayerUnits::completes) are final. After the backward of the
  // last micro-batch; where weight gradients are deferred, when those of this layer have run: what
  // earlier micro-batches deferred must have run before.
  virtual void complete(std::size_t /*layer*/) {}
};
using Hooks = std::span<LayerHook* const>;

}  // namespace aisc
