#include "common/optim/optimizer.h"

#include <algorithm>
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

std::vector<OptimizerSlice> slices_in(const Unit& unit, const FlatUnit& place,
                                      const FlatRange& range, View values, ConstView grads) {
  std::vector<OptimizerSlice> slices;
  for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
    const Parameter& p = *unit.parameters[i];
    const std::int64_t begin = std::max(range.begin, place.parameters[i].begin);
    const std::int64_t count = std::min(range.end, place.parameters[i].end) - begin;
    if (count > 0)
      slices.push_back({p.name, values.flat(begin - range.begin, count),
                        grads.flat(begin - range.begin, count), p.decay, &p,
                        begin - place.parameters[i].begin});
  }
  return slices;
}

void write_part(View whole, ConstView part, const Parameter& p, std::int64_t begin) {
  for (const GlobalRun& run : global_runs(p, {begin, begin + part.count()}))
    part.device().copy(whole.flat(run.global, run.count), part.flat(run.local - begin, run.count));
}

void read_part(View part, ConstView whole, const Parameter& p, std::int64_t begin) {
  for (const GlobalRun& run : global_runs(p, {begin, begin + part.count()}))
    part.device().copy(part.flat(run.local - begin, run.count), whole.flat(run.global, run.count));
}

void Optimizer::step(const OptimizerStep& options) { do_step(options, ++steps_); }

std::vector<Tensor> Optimizer::make_masters() const {
  std::vector<Tensor> masters;
  for (const OptimizerSlice& slice : slices_) {
    masters.emplace_back();
    if (state_dtype(slice) == slice.weight.dtype()) continue;
    masters.back() =
        Tensor({slice.weight.count()}, DType::F32, slice.weight.device(), Purpose::Optimizer);
    ops::cast(masters.back(), slice.weight);
  }
  return masters;
}

std::vector<Tensor> Optimizer::make_zeros() const {
  std::vector<Tensor> zeros;
  for (const OptimizerSlice& slice : slices_)
    zeros.push_back(Tensor::zeros({slice.weight.count()}, state_dtype(slice), slice.weight.device(),
                                  Purpose::Optimizer));
  return zeros;
}

AdamW::AdamW(std::vector<OptimizerSlice> slices, const Options& options)
    : Optimizer(std::move(slices)),
      options_(options),
      masters_(make_masters()),
      m_(make_zeros()),
      v_(make_zeros()) {}

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
    : Optimizer(std::move(slices)), options_(options), masters_(make_masters()) {
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
