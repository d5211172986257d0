// What the loops over images have in common: F32 or F64, four dimensions, memory of the host.
#pragma once

#include "common/core/tensor.h"

namespace aisc {

// Throws Error, which begins with `operation`, unless x is (N, C, H, W), F32 or F64, on the host.
void require_images(const char* operation, const ConstView& x);

// Calls f(float{}) or f(double{}).
template <class F>
void of_type(DType dtype, F&& f) {
  return dtype == DType::F64 ? f(double{}) : f(float{});
}

}  // namespace aisc
