// Tensors made of plain numbers and back: what tests write down, and what they read. They may be on
// any device.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string_view>
#include <vector>

#include "common/core/tensor.h"
#include "tests/support/reference.h"

namespace aisc {

// Every element as a double; floating types and integers.
std::vector<double> to_doubles(ConstView x);
reference::Array to_array(ConstView x);  // the same under x's shape

// A tensor of these values, rounded to `dtype`; values.size() is shape.count(), else Error.
Tensor from_doubles(const std::vector<double>& values, const Shape& shape, DType dtype,
                    Device& device, Purpose purpose = Purpose::Activations);
void write_doubles(View out, const std::vector<double>& values);

// Normally distributed values times `scale`, drawn by name: the same in every run, different for
// different names, and before rounding the same for every dtype.
Tensor random_tensor(const Shape& shape, DType dtype, Device& device, std::string_view name,
                     double scale = 1.0);

// Token ids or targets: I32 tensors of shape (count).
Tensor ids_tensor(const std::vector<std::int32_t>& ids, Device& device);
std::vector<std::int32_t> random_ids(std::int64_t count, std::int64_t below, std::string_view name);

// True if both have the same type, shape and bits.
bool same_bits(ConstView a, ConstView b);

// For GoogleTest: "(2, 3, 5)".
void PrintTo(const Shape& shape, std::ostream* out);

// 1, 2, ..., n.
inline std::vector<double> counted(int n) {
  std::vector<double> values;
  for (int i = 1; i <= n; ++i) values.push_back(i);
  return values;
}

}  // namespace aisc
