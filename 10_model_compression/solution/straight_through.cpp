// Rounded weights around each layer, true ones in between.
#include "10_model_compression/straight_through.h"

#include <memory>
#include <utility>

namespace aisc {

bool is_block_matrix(const Parameter& parameter) {
  return parameter.shape.rank() == 2 && parameter.name.starts_with("blocks.") &&
         parameter.name.ends_with(".weight");
}

StraightThrough::StraightThrough(const Rank& rank, const Model& model, const Quantization& how,
                                 const std::function<bool(const Parameter&)>& rounds)
    : rank_(rank), how_(how) {
  how.validate();
  for (const auto& layer : model.layers) {
    matrices_.emplace_back();
    for (Parameter* p : layer->parameters())
      if (p->shape.rank() == 2 && (rounds ? rounds(*p) : is_block_matrix(*p)))
        matrices_.back().push_back(p);
  }
}

void StraightThrough::keep_and_round(std::size_t layer) {
  // LAB 10.5: straight-through training
  // > The true values of matrices_[layer] go into kept_, a Tensor each, on the device of the value,
  // > of Purpose::Workspace; rank_.device.copy(to, from) copies. Then the value, which the layer
  // > reads, is rounded in place.
  for (Parameter* p : matrices_[layer]) {
    const View value = p->value();
    kept_.emplace_back(value.shape(), value.dtype(), rank_.device, Purpose::Workspace);
    rank_.device.copy(kept_.back(), value);
    round_trip(value, how_);
  }
  // END LAB 10.5
}

void StraightThrough::put_back(std::size_t layer) {
  // LAB 10.5: straight-through training
  // > The way back; kept_ is empty afterwards, and its memory free.
  for (std::size_t i = 0; i < kept_.size(); ++i)
    rank_.device.copy(matrices_[layer][i]->value(), kept_[i]);
  kept_.clear();
  // END LAB 10.5
}

void StraightThrough::before_forward(std::size_t layer, const Pass& /*pass*/) {
  // LAB 10.5: straight-through training
  // > Which weights is the loss to see?
  keep_and_round(layer);
  // END LAB 10.5
}

void StraightThrough::after_forward(std::size_t layer, const Pass& /*pass*/, Saved& /*saved*/) {
  // LAB 10.5: straight-through training
  put_back(layer);
  // END LAB 10.5
}

void StraightThrough::before_backward(std::size_t layer, const Pass& /*pass*/, Saved& /*saved*/) {
  // LAB 10.5: straight-through training
  // > dx is dy times a weight: which one, if the loss saw the rounded one?
  keep_and_round(layer);
  // END LAB 10.5
}

void StraightThrough::after_backward(std::size_t layer, const Pass& /*pass*/) {
  // LAB 10.5: straight-through training
  // > The optimizer comes next, some time. Which weights does it move?
  put_back(layer);
  // END LAB 10.5
}

StepParts quantize_aware(const Quantization& how, StepParts parts) {
  how.validate();
  parts.hooks.push_back([how](const Rank& rank, const Model& model, Mesh* /*mesh*/) {
    return std::make_unique<StraightThrough>(rank, model, how);
  });
  return parts;
}

}  // namespace aisc
