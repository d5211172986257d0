// What the tests of operations share: a suite that runs once for each floating type, on a device
// whose new memory is NaN and which must be empty in the end.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "common/ops/ops.h"
#include "tests/support/compare.h"
#include "tests/support/ledger_checks.h"
#include "tests/support/reference.h"
#include "tests/support/tensors.h"

namespace aisc {

using reference::Array;
using reference::Index;

class PerDType : public ::testing::TestWithParam<DType> {
 protected:
  Tensor random(const Shape& shape, std::string_view name, double scale = 1.0) {
    return random_tensor(shape, dtype_, device_, name, scale);
  }
  Tensor unwritten(const Shape& shape) { return Tensor(shape, dtype_, device_); }
  Tensor unwritten_sums(const Shape& shape) { return Tensor(shape, sums_, device_); }
  Tensor tensor(const std::vector<double>& values, const Shape& shape) {
    return from_doubles(values, shape, dtype_, device_);
  }
  bool is_short() const { return size_of(dtype_) < size_of(DType::F32); }

  const DType dtype_ = GetParam();
  const DType sums_ = dtype_ == DType::F64 ? DType::F64 : DType::F32;  // what sums are kept in
  const Tolerance rounded_ = tolerance_of(dtype_);  // of results stored in dtype_
  CpuDevice device_{{.poison = true}};
  NoLeak no_leak_{device_};
};

inline const auto kFloatingTypes =
    ::testing::Values(DType::F64, DType::F32, DType::BF16, DType::F16);

inline const auto kLongTypes = ::testing::Values(DType::F64, DType::F32);
inline const auto kShortTypes = ::testing::Values(DType::BF16, DType::F16);

inline std::string dtype_name(const ::testing::TestParamInfo<DType>& info) {
  return name_of(info.param);
}

}  // namespace aisc
