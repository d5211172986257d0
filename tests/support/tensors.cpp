#include "tests/support/tensors.h"

#include <cstring>
#include <ostream>
#include <string>

#include "tests/support/devices.h"

namespace aisc {
namespace {

constexpr std::uint64_t kTestSeed = 20240;

// dispatch() of dtype.h, with the integers.
template <class F>
void dispatch_all(DType dtype, F f) {
  switch (dtype) {
    case DType::I64:
      return f(std::int64_t{});
    case DType::I32:
      return f(std::int32_t{});
    case DType::U8:
      return f(std::uint8_t{});
    default:
      return dispatch(dtype, f);
  }
}

}  // namespace

std::vector<double> to_doubles(ConstView x) {
  std::vector<double> values(static_cast<std::size_t>(x.count()));
  const OnHost here(x);
  dispatch_all(x.dtype(), [&, to = values.data(), size = values.size()](auto type) {
    const auto* from = here.view().data<decltype(type)>();
    for (std::size_t i = 0; i < size; ++i) to[i] = static_cast<double>(from[i]);
  });
  return values;
}

reference::Array to_array(ConstView x) {
  reference::Array array(x.shape());
  array.values = to_doubles(x);
  return array;
}

void write_doubles(View out, const std::vector<double>& values) {
  if (static_cast<std::int64_t>(values.size()) != out.count())
    fail(std::to_string(values.size()) + " values for a tensor of shape " +
         out.shape().to_string());
  CpuDevice host;
  const Tensor here(out.shape(), out.dtype(), host);
  dispatch_all(out.dtype(), [&, size = values.size()](auto type) {
    using T = decltype(type);
    T* to = here.data<T>();
    const double* from = values.data();
    for (std::size_t i = 0; i < size; ++i) to[i] = static_cast<T>(from[i]);
  });
  host.copy(out, here);
}

Tensor from_doubles(const std::vector<double>& values, const Shape& shape, DType dtype,
                    Device& device, Purpose purpose) {
  Tensor tensor(shape, dtype, device, purpose);
  write_doubles(tensor, values);
  return tensor;
}

Tensor random_tensor(const Shape& shape, DType dtype, Device& device, std::string_view name,
                     double scale) {
  const Philox random(kTestSeed, name);
  std::vector<double> values(static_cast<std::size_t>(shape.count()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = scale * random.normal(i);
  return from_doubles(values, shape, dtype, device);
}

Tensor ids_tensor(const std::vector<std::int32_t>& ids, Device& device) {
  Tensor tensor({static_cast<std::int64_t>(ids.size())}, DType::I32, device);
  CpuDevice host;
  const Tensor here(tensor.shape(), DType::I32, host);
  if (!ids.empty()) std::memcpy(here.data<std::int32_t>(), ids.data(), here.bytes());
  host.copy(tensor, here);
  return tensor;
}

std::vector<std::int32_t> random_ids(std::int64_t count, std::int64_t below,
                                     std::string_view name) {
  const Philox random(kTestSeed, name);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int32_t>(random.below(i, static_cast<std::uint64_t>(below)));
  return ids;
}

bool same_bits(ConstView a, ConstView b) {
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return false;
  const OnHost left(a), right(b);
  return a.count() == 0 || std::memcmp(left.view().raw(), right.view().raw(), a.bytes()) == 0;
}

void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.to_string(); }

}  // namespace aisc
