// What every public operation checks before a kernel sees its arguments.
#pragma once

#include <string>
#include <type_traits>

#include "common/core/tensor.h"
#include "common/ops/kernels.h"

namespace aisc::ops {

// What is charged is not counted where nobody asks.
template <class... Arguments>
void charge(Device& device, const char* operation, OpCost (*cost)(const Arguments&...),
            const std::type_identity_t<Arguments>&... arguments) {
  if (!device.wants_costs()) return;
  OpCost its = cost(arguments...);
  its.operation = operation;
  device.charge(its);
}

// The checks of one call. Every tensor has to live where the first one does; every failure throws
// Error: "layer_norm: weight is (7) F32, expected (8) F32".
class Checks {
 public:
  // `first` sets the device; it has to be there and have a floating type.
  Checks(const char* operation, const char* name, const ConstView& first);

  // The tensor has exactly this shape and type.
  void is(const char* name, const ConstView& x, const Shape& shape, DType dtype) const;
  // The same, but where `dtype` is BF16 or F16 it may be F32: sums kept longer than their terms.
  void is_or_f32(const char* name, const ConstView& x, const Shape& shape, DType dtype) const;
  // The tensor has this many elements of this type, in any shape.
  void has(const char* name, const ConstView& x, std::int64_t count, DType dtype) const;
  void rank(const char* name, const ConstView& x, int rank) const;
  // A number that has to be what `expected` says, e.g. "0 <= rate < 1".
  void number(const char* name, double found, bool holds, const char* expected) const {
    if (!holds) wrong_number(name, found, expected);
  }
  // Charges the device that all tensors are on for the operation and runs its kernel there.
  template <class Kernel, class... Arguments>
  auto run(Kernel Kernels::*kernel, OpCost (*cost)(const Arguments&...),
           const std::type_identity_t<Arguments>&... arguments) const {
    charge(*device_, operation_, cost, arguments...);
    return (kernels_of(*device_).*kernel)(arguments...);
  }

 private:
  void present(const char* name, const ConstView& x) const;
  [[noreturn]] void wrong_number(const char* name, double found, const char* expected) const;
  [[noreturn]] void mismatch(const char* name, const ConstView& x,
                             const std::string& expected) const;

  const char *operation_, *first_;
  Device* device_ = nullptr;
};

}  // namespace aisc::ops
