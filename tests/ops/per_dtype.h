// What the tests of operations share: a suite that runs once for each floating type and kind of
// device, on a device whose new memory is NaN and which must be empty in the end.
#pragma once

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <initializer_list>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "common/ops/ops.h"
#include "tests/support/compare.h"
#include "tests/support/devices.h"
#include "tests/support/ledger_checks.h"
#include "tests/support/reference.h"
#include "tests/support/tensors.h"

namespace aisc {

using reference::Array;
using reference::Index;

struct TypeOnDevice {
  DType dtype;
  DeviceKind kind = DeviceKind::Cpu;
};

class PerDType : public ::testing::TestWithParam<TypeOnDevice> {
 protected:
  void SetUp() override {
    if (!has_device(GetParam().kind)) GTEST_SKIP() << "no GPU";
  }
  Tensor random(const Shape& shape, std::string_view name, double scale = 1.0) {
    return random_tensor(shape, dtype_, device_, name, scale);
  }
  Tensor unwritten(const Shape& shape) { return Tensor(shape, dtype_, device_); }
  Tensor unwritten_sums(const Shape& shape) { return Tensor(shape, sums_, device_); }
  Tensor tensor(const std::vector<double>& values, const Shape& shape) {
    return from_doubles(values, shape, dtype_, device_);
  }
  bool is_short() const { return size_of(dtype_) < size_of(DType::F32); }

  bool on_gpu() const { return device_.kind() == DeviceKind::Cuda; }

  const DType dtype_ = GetParam().dtype;
  const DType sums_ = statistics_of(dtype_);        // what sums are kept in
  const Tolerance rounded_ = tolerance_of(dtype_);  // of results stored in dtype_
  const std::unique_ptr<Device> owned_device_ = make_test_device(GetParam().kind);
  Device& device_ = *owned_device_;
  NoLeak no_leak_{device_};
};

// "F32", and "F32_cuda" on a GPU.
inline std::string name_of_case(TypeOnDevice type) {
  const std::string name = name_of(type.dtype);
  return type.kind == DeviceKind::Cpu ? name : name + "_" + device_kind_name(type.kind);
}
inline std::string dtype_name(const ::testing::TestParamInfo<TypeOnDevice>& info) {
  return name_of_case(info.param);
}
inline void PrintTo(TypeOnDevice type, std::ostream* out) { *out << name_of_case(type); }

// Each of the types on each kind of device that this build has.
inline auto on_devices(std::initializer_list<DType> dtypes) {
  std::vector<TypeOnDevice> cases;
  for (const DeviceKind kind : device_kinds())
    for (const DType dtype : dtypes) cases.push_back({dtype, kind});
  return ::testing::ValuesIn(cases);
}

inline const auto kFloatingTypes = on_devices({DType::F64, DType::F32, DType::BF16, DType::F16});
inline const auto kLongTypes = on_devices({DType::F64, DType::F32});
inline const auto kShortTypes = on_devices({DType::BF16, DType::F16});
// For what is the CPU's alone: kernels called directly, threads.
inline const auto kTypesOnCpu =
    ::testing::Values(TypeOnDevice{DType::F64}, TypeOnDevice{DType::F32}, TypeOnDevice{DType::BF16},
                      TypeOnDevice{DType::F16});

// Calls f(threads) with each of these numbers of threads.
template <class F>
void with_threads(std::initializer_list<int> numbers, F&& f) {
  const int before = omp_get_max_threads();
  for (const int threads : numbers) {
    omp_set_num_threads(threads);
    f(threads);
  }
  omp_set_num_threads(before);
}

// The bias (columns) added to each row of x.
inline Array plus_bias(Array x, ConstView bias) {
  const std::vector<double> terms = to_doubles(bias);
  for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] += terms[i % terms.size()];
  return x;
}

// A tensor that begins `before` elements after an address that is good for long accesses. It lies
// between NaN, which nobody may read, nor write anything else there.
class Between {
 public:
  // Not written: NaN.
  Between(const Shape& shape, DType dtype, Device& device, Index before = 1)
      : all_({shape.count() + 16}, dtype, device), shape_(shape), before_(before) {
    ops::fill(all_, NAN);
  }
  explicit Between(const Tensor& values, Index before = 1)
      : Between(values.shape(), values.dtype(), values.device(), before) {
    values.device().copy(view(), values);
  }
  ~Between() {
    const std::vector<double> values = to_doubles(all_);
    for (Index i = 0; i < all_.count(); ++i)
      if (i < before_ || i >= before_ + shape_.count()) {
        EXPECT_TRUE(std::isnan(values[static_cast<std::size_t>(i)])) << i << " of " << before_;
      }
  }
  Between(const Between&) = delete;
  Between& operator=(const Between&) = delete;

  View view() const { return all_.view().flat(before_, shape_.count()).reshaped(shape_); }
  operator View() const { return view(); }
  operator ConstView() const { return view(); }

 private:
  const Tensor all_;
  const Shape shape_;
  const Index before_;
};

}  // namespace aisc
