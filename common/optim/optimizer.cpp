#include "common/optim/optimizer.h"

#include <utility>

#include "common/ops/ops.h"

namespace aisc {
namespace {

DType state_dtype(const OptimizerSlice& slice) { return statistics_of(slice.weight.dtype()); }

Device& device_of(const OptimizerSlice& slice, Device* state) {
  return state ? *state : slice.weight.device();
}

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

void Optimizer::step(const OptimizerStep& options) {
  for (std::size_t i = 0; i < slices_.size(); ++i)
    if (slices_[i].parameter && slices_[i].parameter->sign_step != 0) step_by_sign(i);
  do_step(options, ++steps_);
}

// Of a gradient that is then 0 do_step() makes nothing. These are few numbers: the host's.
void Optimizer::step_by_sign(std::size_t i) {
  const OptimizerSlice& slice = slices_[i];
  Device& device = slice.weight.device();
  const View moved = masters_[i] ? masters_[i].view() : slice.weight;
  const double by = slice.parameter->sign_step;
  CpuDevice cpu;
  Device& host = device.kind() == DeviceKind::Meta ? device : static_cast<Device&>(cpu);
  const Tensor gradient(slice.gradient.shape(), slice.gradient.dtype(), host),
      weight(moved.shape(), moved.dtype(), host);
  device.copy(gradient, slice.gradient);
  device.copy(weight, moved);
  if (device.kind() != DeviceKind::Meta)
    dispatch(weight.dtype(), [&](auto type) {
      using T = decltype(type);
      dispatch(gradient.dtype(), [&](auto of_gradient) {
        const auto* g = gradient.data<decltype(of_gradient)>();
        for (std::int64_t j = 0; j < weight.count(); ++j) {
          T& w = weight.data<T>()[j];
          const auto up = static_cast<double>(g[j]);
          w = static_cast<T>(static_cast<double>(w) - (up > 0 ? by : up < 0 ? -by : 0));
        }
      });
    });
  device.copy(moved, weight);
  round_master(i);
  ops::fill(slice.gradient, 0);
}

void Optimizer::round_master(std::size_t i) const {
  const View weight = slices_[i].weight;
  const Tensor& master = masters_[i];
  if (!master) return;
  if (&master.device() == &weight.device()) return ops::cast(weight, master);
  const Tensor rounded(weight.shape(), weight.dtype(), master.device());
  ops::cast(rounded, master);
  weight.device().copy(weight, rounded);
}

Optimizer::Optimizer(std::vector<OptimizerSlice> slices, Device* state)
    : slices_(std::move(slices)) {
  for (const OptimizerSlice& slice : slices_) {
    masters_.emplace_back();
    if (state_dtype(slice) == slice.weight.dtype()) continue;
    Device& device = device_of(slice, state);
    masters_.back() = Tensor({slice.weight.count()}, DType::F32, device, Purpose::Optimizer);
    if (&device == &slice.weight.device()) {
      ops::cast(masters_.back(), slice.weight);
      continue;
    }
    const Tensor weight(slice.weight.shape(), slice.weight.dtype(), device);
    slice.weight.device().copy(weight, slice.weight);
    ops::cast(masters_.back(), weight);
  }
}

std::vector<Tensor> Optimizer::make_zeros(Device* state) const {
  std::vector<Tensor> zeros;
  for (const OptimizerSlice& slice : slices_)
    zeros.push_back(Tensor::zeros({slice.weight.count()}, state_dtype(slice),
                                  device_of(slice, state), Purpose::Optimizer));
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
