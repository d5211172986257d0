#include "04_sharding/adafactor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "04_sharding/adafactor_part.h"
#include "common/comm/host_values.h"
#include "common/core/error.h"

namespace aisc {
namespace {

using adafactor::has_numbers, adafactor::kVectorRow, adafactor::Part;

bool is_matrix(const Shape& shape) { return shape.rank() == 2 && shape[0] > 1 && shape[1] > 1; }

// A matrix's numbers in a tensor of all matrices' rows and columns.
template <class T>
RowsAndColumns<T> of_matrix(const Tensor& all, std::int64_t begin, const Shape& shape) {
  T* const at = all.data<std::remove_const_t<T>>() + begin;
  return {{at, index(shape[0])}, {at + shape[0], index(shape[1])}};
}

// Those of the rows and columns that this rank's part of a matrix has.
template <class T>
RowsAndColumns<T> of_part(const Tensor& all, std::int64_t begin, const Parameter& p) {
  const RowsAndColumns<T> whole = of_matrix<T>(all, begin, p.global_shape);
  const auto from = [&](int dimension) {
    return index(p.split_dim == dimension ? p.split_begin : 0);
  };
  return {whole.row.subspan(from(0), index(p.shape[0])),
          whole.column.subspan(from(1), index(p.shape[1]))};
}

// Of `used` elements of a whole parameter, those in this rank's part. Padding is whole rows.
std::int64_t used_here(const Parameter& p, std::int64_t used) {
  if (p.split_dim < 0) return used;
  const std::int64_t rows = used / (p.global_shape.count() / p.global_shape[0]);
  const std::int64_t first = p.split_dim == 0 ? p.split_begin : 0;
  return std::clamp<std::int64_t>(rows - first, 0, p.shape[0]) * (p.shape.count() / p.shape[0]);
}

}  // namespace

Adafactor::Adafactor(const Rank& rank, std::span<const Parameter* const> all_parameters,
                     std::vector<OptimizerSlice> slices, const Options& options)
    : Optimizer(std::move(slices)),
      rank_(rank),
      options_(options),
      device_(slices_.empty() ? rank.device : slices_[0].weight.device()),
      v_(slices_.size()) {
  std::int64_t count = 0;
  for (const Parameter* p : all_parameters) {
    const std::int64_t drawn = p->init.drawn, all = p->global_shape.count();
    const bool counts = !options.parts || p->split_dim >= 0 || options.parts->rank() == 0;
    wholes_.push_back({p, drawn < 0 ? all : std::min(drawn, all), count, counts});
    if (is_matrix(p->global_shape)) count += p->global_shape[0] + p->global_shape[1];
  }
  check();
  for (const OptimizerSlice& slice : slices_) whole_of_.push_back(find_whole(slice));
  const DType dtype = agree_on_type();
  moment_ = Tensor::zeros({count}, dtype, device_, Purpose::Optimizer);
  for (std::size_t i = 0; i < slices_.size(); ++i)
    if (!is_matrix(slices_[i].parameter->global_shape))
      v_[i] = Tensor::zeros({slices_[i].weight.count()}, dtype, device_, Purpose::Optimizer);
}

void Adafactor::check() const {
  const auto& [clip, decay_power, eps1, eps2, weight_decay, step, slices, parts] = options_;
  constexpr double kLeast = std::numeric_limits<float>::min();
  if (!(clip > 0 && decay_power > 0 && eps1 >= kLeast && eps2 >= 0 && weight_decay >= 0))
    fail(
        fmt::format("Adafactor: clip {}, decay_power {}, eps1 {}, eps2 {}, weight_decay {}: "
                    "expected > 0, > 0, at least {:.3g}, >= 0, >= 0",
                    clip, decay_power, eps1, eps2, weight_decay, kLeast));
  for (const Whole& whole : wholes_)
    if (const Parameter& p = *whole.parameter; p.shape != p.global_shape && !parts)
      fail(fmt::format("Adafactor: {} is {} of {}: other ranks have some of its rows or columns",
                       p.name, p.shape.to_string(), p.global_shape.to_string()));
  for (const OptimizerSlice& slice : slices_) {
    const DType dtype = slice.weight.dtype();
    const Device& device = slice.weight.device();
    if (dtype != DType::F32 && dtype != DType::BF16 && dtype != DType::F64)
      fail(fmt::format("Adafactor: {} is {}, expected F32, BF16 or F64", slice.name,
                       name_of(dtype)));
    if (&device != &device_ || (has_numbers(device) && !device.is_host()))
      fail(fmt::format("Adafactor: {} is on {}, expected the host, and one device of all weights",
                       slice.name, device.name()));
  }
}

std::size_t Adafactor::find_whole(const OptimizerSlice& slice) const {
  const auto whole = std::find_if(wholes_.begin(), wholes_.end(),
                                  [&](const Whole& w) { return w.parameter == slice.parameter; });
  if (whole == wholes_.end())
    fail(fmt::format("Adafactor: {} is a slice of none of {} parameters", slice.name,
                     wholes_.size()));
  const std::int64_t end = slice.begin + slice.weight.count(),
                     all = whole->parameter->shape.count();
  if (slice.begin < 0 || end > all)
    fail(
        fmt::format("Adafactor: {} is elements {} to {} of {}", slice.name, slice.begin, end, all));
  return index(whole - wholes_.begin());
}

// The type of the statistics, also of a rank without a slice; and are slices each parameter once?
DType Adafactor::agree_on_type() const {
  if (!has_numbers(device_))  // nothing to agree on, and perhaps nobody
    return slices_.empty() ? DType::F32 : statistics_of(slices_[0].weight.dtype());
  std::vector<std::int64_t> found(wholes_.size() + 2);  // elements by parameter; F64 slices, slices
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    found[whole_of_[i]] += slices_[i].weight.count();
    found[wholes_.size()] += slices_[i].weight.dtype() == DType::F64 ? 1 : 0;
    ++found.back();
  }
  if (options_.slices == Slices::Divided)
    sum_of_all(rank_.world, found);  // comm: 8 bytes a parameter, once
  for (std::size_t w = 0; w < wholes_.size(); ++w)
    if (const Parameter& p = *wholes_[w].parameter; found[w] != p.shape.count())
      fail(fmt::format("Adafactor: slices have {} elements of {}, expected each of its {} once",
                       found[w], p.name, p.shape.count()));
  const std::int64_t in_f64 = found[wholes_.size()], all = found.back();
  if (in_f64 != 0 && in_f64 != all)
    fail(fmt::format("Adafactor: {} of {} slices are F64, expected all or none", in_f64, all));
  return in_f64 != 0 ? DType::F64 : DType::F32;
}

template <class F>
void Adafactor::each_part(const Tensor& of_matrices, double scale, const Pass& pass,
                          const F& f) const {
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const OptimizerSlice& slice = slices_[i];
    const View weight = masters_[i] ? masters_[i].view() : slice.weight;
    const std::int64_t begin = slice.begin, count = weight.count();
    const std::size_t bytes = slice.gradient.bytes() + pass.weights * weight.bytes() +
                              pass.moments * v_[i].bytes() +
                              (masters_[i] ? pass.copies * slice.weight.bytes() : 0);
    device_.charge({.operation = "adafactor",
                    .flops = pass.flops * static_cast<double>(count),
                    .bytes = static_cast<double>(bytes),
                    .dtype = weight.dtype()});
    if (!has_numbers(device_)) continue;
    const Whole& whole = wholes_[whole_of_[i]];
    const Parameter& p = *whole.parameter;
    const auto call = [&](auto gradient, auto short_weight) {
      using T = decltype(short_weight);
      using S = Accumulator<T>;
      f(i, Part<S, decltype(gradient), T>{
               .gradient = slice.gradient.data<decltype(gradient)>(),
               .weight = weight.data<S>(),
               .short_weight = slice.weight.data<T>(),
               .v = v_[i] ? v_[i].data<S>() : nullptr,
               .sums = v_[i] ? RowsAndColumns<S>{} : of_part<S>(of_matrices, whole.begin, p),
               .scale = static_cast<S>(scale),
               .columns = v_[i] ? kVectorRow : p.shape[1],
               .begin = begin,
               .end = std::clamp(used_here(p, whole.used), begin, begin + count)});
    };
    dispatch(slice.weight.dtype(), [&](auto type) {
      if (slice.gradient.dtype() == slice.weight.dtype())
        call(type, type);
      else
        call(float{}, type);
    });
  }
}

void Adafactor::factor(const Tensor& sums, double beta2, const Tensor& factors) const {
  const auto all = [&](auto type) {
    using S = decltype(type);
    for (const Whole& whole : wholes_) {
      const Shape& shape = whole.parameter->global_shape;
      if (is_matrix(shape))
        factor_second_moment<S>(of_matrix<S>(moment_, whole.begin, shape),
                                of_matrix<const S>(sums, whole.begin, shape), beta2,
                                of_matrix<S>(factors, whole.begin, shape));
    }
  };
  if (!has_numbers(device_)) return;
  if (moment_.dtype() == DType::F64)
    all(double{});
  else
    all(float{});
}

void Adafactor::add_up(const Tensor& sums) const {
  if (sums.count() == 0) return;
  const auto span = rank_.trace.span("communication", "Adafactor's sums");
  if (options_.slices == Slices::Divided)
    rank_.world.all_reduce(sums).wait();  // comm: n + m numbers a matrix; then 16 bytes a parameter
  if (options_.parts)
    options_.parts->all_reduce(sums).wait();  // comm: the same, of parts of layers
}

void Adafactor::do_step(const OptimizerStep& options, std::int64_t step) {
  const auto t = static_cast<double>(step);
  const double beta2 = 1 - std::pow(t, -options_.decay_power), scale = options.gradient_scale;
  const double rho =
      options_.step == Step::Scheduled ? options.learning_rate : std::min(1e-2, 1 / std::sqrt(t));
  const Tensor sums = Tensor::zeros(moment_.shape(), moment_.dtype(), device_, Purpose::Workspace);
  // First pass over the gradients: squares into rows and columns, vectors into their own average.
  each_part(sums, scale, {.flops = 5, .moments = 2},
            [&]<class S, class G, class T>(std::size_t i, Part<S, G, T> part) {
              const S eps1 = static_cast<S>(options_.eps1);
              if (part.v)
                part.average(static_cast<S>(beta2), eps1);
              else if (wholes_[whole_of_[i]].counts)
                part.add_squares(eps1, device_);
            });
  add_up(sums);

  const Tensor factors(moment_.shape(), moment_.dtype(), device_, Purpose::Workspace);
  factor(sums, beta2, factors);
  const Tensor squares = Tensor::zeros({static_cast<std::int64_t>(wholes_.size()), 2}, DType::F64,
                                       device_, Purpose::Workspace);  // (P, 2): of U and X
  // Second pass: of each parameter the squares of update U and weights X, which its clipping and
  // its step need whole.
  each_part(factors, scale, {.flops = 7, .weights = 1, .moments = 1},
            [&](std::size_t i, const auto& part) {
              if (!wholes_[whole_of_[i]].counts) return;
              double* const to = squares.data<double>() + 2 * whole_of_[i];
              const auto [u, x] = part.squares();
              to[0] += u, to[1] += x;
            });
  add_up(squares);

  // Third pass: U is computed once more, in place of being kept, and moves the weights.
  each_part(factors, scale, {.flops = 6, .weights = 2, .moments = 1, .copies = 1},
            [&]<class S, class G, class T>(std::size_t i, Part<S, G, T> part) {
              const double* const sum = squares.data<double>() + 2 * whole_of_[i];
              const auto used = static_cast<double>(wholes_[whole_of_[i]].used);
              const double alpha = std::max(options_.eps2, std::sqrt(sum[1] / used)) * rho;
              const double clipped =
                  alpha / std::max(1.0, std::sqrt(sum[0] / used) / options_.clip);
              const double decay = slices_[i].decay ? options_.weight_decay : 0;
              part.move(static_cast<S>(clipped), static_cast<S>(1 - alpha * decay));
            });
}

std::vector<Optimizer::State> Adafactor::state() const {
  std::vector<State> state;
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const auto add = [&, &slice = slices_[i]](const char* what, const Tensor& x) {
      if (x) state.push_back({slice.name + what, x, slice.parameter, slice.begin});
    };
    add("/master", masters_[i]);
    add("/v", v_[i]);
  }
  for (const Whole& whole : wholes_) {
    const Shape& shape = whole.parameter->global_shape;
    if (!is_matrix(shape)) continue;
    const auto add = [&](const char* what, std::int64_t begin, std::int64_t count) {
      state.push_back(
          {whole.parameter->name + what, moment_.view().flat(begin, count), nullptr, 0});
    };
    add("/row", whole.begin, shape[0]);
    add("/column", whole.begin + shape[0], shape[1]);
  }
  return state;
}

}  // namespace aisc
