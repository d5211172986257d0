// What Adafactor refuses: options and slices that it cannot move. And what all ranks agree on
// before the first step.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "04_sharding/adafactor.h"
#include "04_sharding/adafactor_part.h"
#include "common/comm/host_values.h"
#include "common/core/error.h"

namespace aisc {

using adafactor::has_numbers;

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

}  // namespace aisc
