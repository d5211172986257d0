#include "12_encoders/more/blank_samples.h"

namespace aisc {
namespace {

Tensor blank_ids(Device& device, const Shape& shape) { return {shape, DType::I32, device}; }

}  // namespace

Batch BlankPairs::batch(Device& device, std::int64_t first, std::int64_t count) const {
  return {.tokens = blank_ids(device, {count, T_}),
          .targets = blank_ids(device, {count + count * K_}),
          .terms = terms(first, count),
          .lengths = blank_ids(device, {count}),
          .segments = blank_ids(device, {count, T_}),
          .picked = blank_ids(device, {count + count * K_})};
}

double BlankPairs::terms(std::int64_t /*first*/, std::int64_t count) const {
  return static_cast<double>(count * K_);
}

Batch BlankTranslations::batch(Device& device, std::int64_t first, std::int64_t count) const {
  return {.tokens = blank_ids(device, {count, S_}),
          .targets = blank_ids(device, {count, T_}),
          .terms = terms(first, count),
          .lengths = blank_ids(device, {count}),
          .decoder = blank_ids(device, {count, T_})};
}

double BlankTranslations::terms(std::int64_t /*first*/, std::int64_t count) const {
  return static_cast<double>(count * T_);
}

}  // namespace aisc
