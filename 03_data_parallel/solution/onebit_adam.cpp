#include "03_data_parallel/onebit_adam.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "03_data_parallel/average.h"
#include "common/core/error.h"
#include "common/ops/ops.h"
#include "common/train/trainer.h"

namespace aisc {
namespace {

bool has_numbers(const Device& device) { return device.kind() != DeviceKind::Meta; }

// A pass over n numbers.
void charge(Device& device, const char* what, std::int64_t n, double flops, double bytes) {
  device.charge({.operation = what,
                 .flops = flops * static_cast<double>(n),
                 .bytes = bytes * static_cast<double>(n),
                 .dtype = DType::F32});
}

void check(const std::vector<OptimizerSlice>& slices, const OneBitAdam::Options& options) {
  if (slices.empty()) fail("1-bit Adam: there are no weights");
  for (const OptimizerSlice& slice : slices)
    if (slice.weight.dtype() != DType::F32 && slice.weight.dtype() != DType::BF16)
      fail(fmt::format("1-bit Adam: {} is {}, expected F32 or BF16", slice.name,
                       name_of(slice.weight.dtype())));
  const Device& device = slices[0].weight.device();
  if (has_numbers(device) && !device.is_host())
    fail(fmt::format("1-bit Adam: weights on {}, expected on the host", device.name()));
  if (!has_numbers(device) && options.warmup == 0)
    fail("1-bit Adam: without numbers nobody sees when v has settled: steps of warm-up expected");
}

}  // namespace

OneBitAdam::OneBitAdam(const Rank& rank, std::vector<OptimizerSlice> slices, const Options& options)
    : Optimizer(std::move(slices)), rank_(rank), options_(options) {
  check(slices_, options);
  for (const OptimizerSlice& slice : slices_) {
    begins_.push_back(static_cast<std::int64_t>(used_.size()) * kSignBlock);
    std::int64_t used = slice.weight.count();  // without what pads the vocabulary, which stays 0
    if (slice.parameter && slice.parameter->init.drawn >= 0)
      used = std::clamp<std::int64_t>(slice.parameter->init.drawn - slice.begin, 0, used);
    for (std::int64_t at = 0; at < slice.weight.count(); at += kSignBlock)
      used_.push_back(std::clamp<std::int64_t>(used - at, 0, kSignBlock));
  }
  while (used_.size() % static_cast<std::size_t>(rank.world.size()) != 0) used_.push_back(0);
  const std::int64_t n = static_cast<std::int64_t>(used_.size()) * kSignBlock;
  const auto zeros = [&](std::int64_t count) {
    return Tensor::zeros({count}, DType::F32, slices_[0].weight.device(), Purpose::Optimizer);
  };
  m_ = zeros(n), v_ = zeros(n);
  errors_ = {.worker = zeros(n), .server = zeros(n / rank.world.size())};
  settled_at_ = Tensor::zeros({1}, DType::F64, host_, Purpose::Optimizer);
  // As many steps as v is a mean of.
  const std::int64_t apart = std::max<std::int64_t>(1, std::llround(1 / (1 - options.adam.beta2)));
  sums_ = Tensor::zeros({apart}, DType::F64, host_, Purpose::Optimizer);
}

View OneBitAdam::of_slice(const Tensor& all, std::size_t slice) const {
  return all.view().flat(begins_[slice], slices_[slice].weight.count());
}

bool OneBitAdam::is_compressing() const { return settled_at_.values<double>()[0] > 0; }

void OneBitAdam::do_step(const OptimizerStep& options, std::int64_t step) {
  if (!is_compressing()) {
    exact_step(options, step);
    if (has_settled(step)) begin_compressing(step);
    return;
  }
  if (options.gradient_scale != 1)
    fail("1-bit Adam: gradients cannot be clipped, since they are never added up: expected clip 0");
  move_momentum();
  mean_by_signs(rank_, m_, used_, errors_);
  update(options, step);
}

void OneBitAdam::exact_step(const OptimizerStep& options, std::int64_t step) {
  for (std::size_t i = 0; i < slices_.size(); ++i)
    ops::adamw(slices_[i].weight, masters_[i], of_slice(m_, i), of_slice(v_, i),
               slices_[i].gradient,
               {.learning_rate = options.learning_rate,
                .beta1 = options_.adam.beta1,
                .beta2 = options_.adam.beta2,
                .epsilon = options_.adam.epsilon,
                .weight_decay = slices_[i].decay ? options_.adam.weight_decay : 0,
                .step = step,
                .gradient_scale = options.gradient_scale});
}

bool OneBitAdam::has_settled(std::int64_t step) {
  if (options_.warmup > 0) return step >= options_.warmup;
  const std::span<const float> v = v_.values<float>();
  const double sum = std::accumulate(v.begin(), v.end(), 0.0);
  double& old = sums_.values<double>()[static_cast<std::size_t>(step % sums_.count())];
  const double ratio = std::min(old, sum) / std::max(old, sum);  // NaN where both are 0
  old = sum;
  return step > sums_.count() && step >= options_.least_warmup && ratio >= options_.settled;
}

// From here on v_ is sqrt(v') + eps, and m_ is u.
void OneBitAdam::begin_compressing(std::int64_t step) {
  settled_at_.values<double>()[0] = static_cast<double>(step);
  charge(m_.device(), "onebit_adam", m_.count(), 3, 16);
  if (!has_numbers(m_.device())) return;
  const double corrected = 1 / (1 - std::pow(options_.adam.beta2, static_cast<double>(step)));
  float *const m = m_.data<float>(), *const v = v_.data<float>();
#pragma omp parallel for
  for (std::int64_t j = 0; j < m_.count(); ++j) {
    v[j] = static_cast<float>(std::sqrt(v[j] * corrected) + options_.adam.epsilon);
    m[j] /= v[j];
  }
}

// u <- b1 u + (1 - b1) g / (sqrt v' + eps), where g is this rank's gradient: its part of the mean,
// times the ranks.
void OneBitAdam::move_momentum() {
  const auto beta1 = static_cast<float>(options_.adam.beta1);
  const auto most = static_cast<float>(1 / std::sqrt(1 - options_.adam.beta2));
  const auto ranks = static_cast<float>(rank_.world.size());
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const std::int64_t n = slices_[i].gradient.count();
    const Tensor gradient({n}, DType::F32, m_.device(), Purpose::Workspace);
    ops::cast(gradient, slices_[i].gradient);
    charge(m_.device(), "onebit_adam", n, 5, 16);
    if (!has_numbers(m_.device())) continue;
    float* const u = of_slice(m_, i).data<float>();
    const float* const scale = of_slice(v_, i).data<float>();
    const float* const g = gradient.data<float>();
#pragma omp parallel for
    for (std::int64_t j = 0; j < n; ++j)
      u[j] = beta1 * u[j] + (1 - beta1) * std::clamp(ranks * g[j] / scale[j], -most, most);
  }
}

// As AdamW's: u is m / (sqrt v' + eps) already.
void OneBitAdam::update(const OptimizerStep& options, std::int64_t step) {
  const AdamW::Options& adam = options_.adam;
  const double corrected = 1 / (1 - std::pow(adam.beta1, static_cast<double>(step)));
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const View weight = masters_[i] ? masters_[i].view() : slices_[i].weight;
    charge(weight.device(), "onebit_adam", weight.count(), 4, 12);
    if (!has_numbers(weight.device())) continue;
    const float* const u = of_slice(m_, i).data<float>();
    float* const w = weight.data<float>();
    const double decay = slices_[i].decay ? adam.weight_decay : 0;
#pragma omp parallel for
    for (std::int64_t j = 0; j < weight.count(); ++j)
      w[j] -= static_cast<float>(options.learning_rate * (u[j] * corrected + decay * w[j]));
    if (masters_[i]) ops::cast(slices_[i].weight, weight);
  }
}

std::vector<Optimizer::State> OneBitAdam::state() const {
  std::vector<State> state;
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const auto add = [&](const char* what, const View& value) {
      state.push_back({slices_[i].name + what, value, slices_[i].parameter, slices_[i].begin});
    };
    if (masters_[i]) add("/master", masters_[i]);
    add("/onebit_m", of_slice(m_, i));
    add("/onebit_v", of_slice(v_, i));
  }
  state.push_back({"onebit_adam/settled_at", settled_at_, nullptr, 0});
  state.push_back({"onebit_adam/sums", sums_, nullptr, 0});
  return state;
}

std::vector<Optimizer::State> OneBitAdam::own_state() const {
  return {{"onebit_adam/worker_error", errors_.worker, nullptr, 0},
          {"onebit_adam/server_error", errors_.server, nullptr, 0}};
}

bool SumWhileExact::is_compressing() const {
  return dynamic_cast<const OneBitAdam&>(optimizer()).is_compressing();
}

void SumWhileExact::begin() {
  if (!is_compressing()) sum_->begin();
}

void SumWhileExact::complete(std::size_t layer) {
  if (!is_compressing()) sum_->complete(layer);
}

void SumWhileExact::finish() {
  store().complete_grads();
  if (!is_compressing()) sum_->finish();
}

double SumWhileExact::norm(const MeshPlace& place) const {
  const double own = Reducer::norm(place);
  if (!is_compressing()) return own;
  return root_mean_square(rank().world, own * rank().world.size());
}

StepParts onebit_adam(std::int64_t warmup, const BucketOptions& buckets) {
  StepParts parts;
  parts.optimizer = [warmup](const Rank& rank, Mesh* /*mesh*/, ParameterStore& /*store*/,
                             std::vector<OptimizerSlice> slices, const TrainConfig& config) {
    return std::make_unique<OneBitAdam>(
        rank, std::move(slices),
        OneBitAdam::Options{.adam = {.beta1 = config.beta1,
                                     .beta2 = config.beta2,
                                     .weight_decay = config.weight_decay},
                            .least_warmup = config.warmup_steps,
                            .warmup = warmup});
  };
  parts.reducer = [buckets](const Rank& rank, const Model& model, ParameterStore& store) {
    return std::make_unique<SumWhileExact>(rank, store, bucketed(buckets)(rank, model, store));
  };
  return parts;
}

}  // namespace aisc
