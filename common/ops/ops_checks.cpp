#include "common/ops/ops_checks.h"

#include <fmt/format.h>

namespace aisc::ops {

Checks::Checks(const char* operation, const char* name, const ConstView& first)
    : operation_(operation), first_(name) {
  if (!first) fail(fmt::format("{}: {} is empty", operation, name));
  device_ = &first.device();
  if (!is_floating(first.dtype())) mismatch(name, first, "a floating type");
}

void Checks::is(const char* name, const ConstView& x, const Shape& shape, DType dtype) const {
  present(name, x);
  if (x.dtype() != dtype || !(x.shape() == shape))
    mismatch(name, x, fmt::format("{} {}", shape.to_string(), name_of(dtype)));
}

void Checks::is_or_f32(const char* name, const ConstView& x, const Shape& shape,
                       DType dtype) const {
  const bool shorter = size_of(dtype) < size_of(DType::F32);
  if (!shorter || (x && x.dtype() == dtype)) return is(name, x, shape, dtype);
  present(name, x);
  if (x.dtype() != DType::F32 || !(x.shape() == shape))
    mismatch(name, x, fmt::format("{} {} or F32", shape.to_string(), name_of(dtype)));
}

void Checks::has(const char* name, const ConstView& x, std::int64_t count, DType dtype) const {
  present(name, x);
  if (x.dtype() != dtype || x.count() != count)
    mismatch(name, x, fmt::format("{} elements {}", count, name_of(dtype)));
}

void Checks::rank(const char* name, const ConstView& x, int rank) const {
  present(name, x);
  if (x.shape().rank() != rank) mismatch(name, x, fmt::format("{} dimensions", rank));
}

void Checks::present(const char* name, const ConstView& x) const {
  if (!x) fail(fmt::format("{}: {} is empty", operation_, name));
  if (&x.device() != device_)
    fail(fmt::format("{}: {} is on another device ({}) than {} ({})", operation_, name,
                     x.device().name(), first_, device_->name()));
}

void Checks::wrong_number(const char* name, double found, const char* expected) const {
  fail(fmt::format("{}: {} is {}, expected {}", operation_, name, found, expected));
}

void Checks::mismatch(const char* name, const ConstView& x, const std::string& expected) const {
  fail(fmt::format("{}: {} is {} {}, expected {}", operation_, name, x.shape().to_string(),
                   name_of(x.dtype()), expected));
}

}  // namespace aisc::ops
