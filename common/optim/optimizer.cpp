#include "common/optim/optimizer.h"

#include <utility>

#include "common/ops/ops.h"

namespace aisc {
namespace {

DType state_dtype(const OptimizerSlice& slice) { return statistics_of(slice.weight.dtype()); }

View flattened(const View& x) { return x.reshaped({x.count()}); }

void add_state(std::vector<Optimizer::State>& state, const OptimizerSlice& slice,
               const Tensor& tensor, const char* what) {
  if (tensor) state.push_back({slice.name + "/" + what, tensor, slice.parameter, slice.begin});
}

}  // namespace

std::vector<OptimizerSlice> slices_of(std::span<Parameter* const> parameters) {
  std::vector<OptimizerSlice> slices;
  for (const Parameter* p : parameters)
    slices.push_back({p->name, flattened(p->value()), flattened(p->grad()), p->decay, p, 0});
  return slices;
}

void Optimizer::step(const OptimizerStep& options) { do_step(options, ++steps_); }

Optimizer::Optimizer(std::vector<OptimizerSlice> slices) : slices_(std::move(slices)) {
  for (const OptimizerSlice& slice : slices_) {
    masters_.emplace_back();
    if (state_dtype(slice) == slice.weight.dtype()) continue;
    masters_.back() =
        Tensor({slice.weight.count()}, DType::F32, slice.weight.device(), Purpose::Optimizer);
    ops::cast(masters_.back(), slice.weight);
  }
}

std::vector<Tensor> Optimizer::make_zeros() const {
  std::vector<Tensor> zeros;
  for (const OptimizerSlice& slice : slices_)
    zeros.push_back(Tensor::zeros({slice.weight.count()}, state_dtype(slice), slice.weight.device(),
                                  Purpose::Optimizer));
  return zeros;
}

AdamW::AdamW(std::vector<OptimizerSlice> slices, const Options& options)
    : Optimizer(std::move(slices)), options_(options), m_(make_zeros()), v_(make_zeros()) {}

void AdamW::do_step(const OptimizerStep& options, std::int64_t step) {
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const OptimizerSlice& slice = slices_[i];
    ops::adamw(slice.weight, masters_[i], m_[i], v_[i], slice.gradient,
               {.learning_rate = options.learning_rate,
                .beta1 = options_.beta1,
                .beta2 = options_.beta2,
                .epsilon = options_.epsilon,
                .weight_decay = slice.decay ? options_.weight_decay : 0,
                .step = step,
                .gradient_scale = options.gradient_scale});
  }
}

std::vector<Optimizer::State> AdamW::state() const {
  std::vector<State> state;
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    add_state(state, slices_[i], masters_[i], "master");
    add_state(state, slices_[i], m_[i], "m");
    add_state(state, slices_[i], v_[i], "v");
  }
  return state;
}

Sgd::Sgd(std::vector<OptimizerSlice> slices, const Options& options)
    : Optimizer(std::move(slices)), options_(options) {
  if (options.momentum != 0)
    velocity_ = make_zeros();
  else
    velocity_.resize(slices_.size());
}

void Sgd::do_step(const OptimizerStep& options, std::int64_t /*step*/) {
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const OptimizerSlice& slice = slices_[i];
    ops::sgd(slice.weight, masters_[i], velocity_[i], slice.gradient,
             {.learning_rate = options.learning_rate,
              .momentum = options_.momentum,
              .weight_decay = slice.decay ? options_.weight_decay : 0,
              .gradient_scale = options.gradient_scale});
  }
}

std::vector<Optimizer::State> Sgd::state() const {
  std::vector<State> state;
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    add_state(state, slices_[i], masters_[i], "master");
    add_state(state, slices_[i], velocity_[i], "velocity");
  }
  return state;
}

}  // namespace aisc
