#include "10_model_compression/more/packed_bits.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <type_traits>
#include <vector>

#include "common/core/error.h"
#include "common/core/range.h"
#include "common/ops/cpu/parallel.h"

namespace aisc {
namespace {

constexpr std::int64_t kBlockBytes = 512;  // of bits, whose values are found by one count

// False where nothing is computed. Integer work counts as F32's.
bool has_packed_values(const char* what, const ConstView& x, double bytes) {
  Device& device = x.device();
  device.charge({.operation = what,
                 .flops = static_cast<double>(x.count()),
                 .bytes = bytes,
                 .dtype = is_floating(x.dtype()) ? x.dtype() : DType::F32});
  if (device.kind() == DeviceKind::Meta) return false;
  if (!device.is_host())
    fail(fmt::format("{}: numbers on {}, expected on the host", what, device.name()));
  return x.count() > 0;
}

double moved_bytes(const ConstView& x) { return static_cast<double>(x.bytes()); }

template <class Holds>
void write_bits(std::uint8_t* bits, std::int64_t count, Holds holds) {
  cpu::parallel_pieces(packed_bytes(count), 8, 64, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t byte = begin; byte < end; ++byte) {
      unsigned its = 0;
      const std::int64_t first = 8 * byte;
      for (std::int64_t i = 0; i < std::min<std::int64_t>(8, count - first); ++i)
        its |= static_cast<unsigned>(holds(first + i)) << i;
      bits[byte] = static_cast<std::uint8_t>(its);
    }
  });
}

bool is_set(const std::uint8_t* bits, std::int64_t i) { return (bits[i / 8] >> (i % 8) & 1) != 0; }

// +0, but not -0: the only number without a bit.
template <class T>
bool is_plain_zero(T value) {
  using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t,
                                  std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>;
  return std::bit_cast<Bits>(value) == 0;
}

// Where each block's values begin, and where all end. Of 5 0 7 | 0 0 9 in blocks of three: 0 2 3.
// Throws Error where the bits are of more or fewer values than there are.
std::vector<std::int64_t> value_begins(const char* what, ConstView bits, std::int64_t values) {
  const auto* from = bits.data<std::uint8_t>();
  std::vector<std::int64_t> begins;
  std::int64_t found = 0;
  for (std::int64_t byte = 0; byte < bits.count(); ++byte) {
    if (byte % kBlockBytes == 0) begins.push_back(found);
    found += std::popcount(from[byte]);
  }
  begins.push_back(found);
  if (found != values)
    fail(fmt::format("{}: {} values, {} elements are not 0", what, values, found));
  return begins;
}

// Calls use(block's elements, where its values begin); blocks do not depend on each other.
template <class F>
void for_value_blocks(const std::vector<std::int64_t>& begins, std::int64_t count, F use) {
  const std::int64_t* begin_of = begins.data();
  const std::int64_t blocks = std::ssize(begins) - 1;
  cpu::parallel_rows(blocks, 8 * kBlockBytes, [=](std::int64_t b) {
    const std::int64_t first = 8 * kBlockBytes * b;
    use(Range{first, std::min(count, first + 8 * kBlockBytes)}, begin_of[b]);
  });
}

}  // namespace

Tensor pack_mask(ConstView mask) {
  if (mask.dtype() != DType::U8)
    fail(fmt::format("pack_mask: the mask is {}, expected U8", name_of(mask.dtype())));
  Tensor bits({packed_bytes(mask.count())}, DType::U8, mask.device());
  if (!has_packed_values("pack mask", mask, moved_bytes(mask) + moved_bytes(bits))) return bits;
  const auto numbers = mask.values<std::uint8_t>();
  const auto wrong = std::find_if(numbers.begin(), numbers.end(), [](auto m) { return m > 1; });
  if (wrong != numbers.end())
    fail(fmt::format("pack_mask: element {} is {}, expected 0 or 1", wrong - numbers.begin(),
                     *wrong));
  const std::uint8_t* from = numbers.data();
  write_bits(bits.data<std::uint8_t>(), mask.count(),
             [from](std::int64_t i) { return from[i] != 0; });
  return bits;
}

Tensor pack_signs(ConstView x) {
  Tensor bits({packed_bytes(x.count())}, DType::U8, x.device());
  if (!has_packed_values("pack signs", x, moved_bytes(x) + moved_bytes(bits))) return bits;
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* from = x.data<T>();
    write_bits(bits.data<std::uint8_t>(), x.count(),
               [from](std::int64_t i) { return static_cast<double>(from[i]) > 0; });
  });
  return bits;
}

void unpack_bits(View out, ConstView bits) {
  if (bits.count() != packed_bytes(out.count()) || bits.dtype() != DType::U8)
    fail(fmt::format("unpack_bits: bits are {} {} for {} elements, expected ({}) U8",
                     bits.shape().to_string(), name_of(bits.dtype()), out.count(),
                     packed_bytes(out.count())));
  if (!has_packed_values("unpack bits", out, moved_bytes(out) + moved_bytes(bits))) return;
  const auto* from = bits.data<std::uint8_t>();
  const auto write = [&](auto* to) {
    using T = std::remove_pointer_t<decltype(to)>;
    cpu::parallel_elements(out.count(), [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) to[i] = T(is_set(from, i) ? 1.0f : 0.0f);
    });
  };
  if (out.dtype() == DType::U8) return write(out.data<std::uint8_t>());
  dispatch(out.dtype(), [&](auto type) { write(out.data<decltype(type)>()); });
}

std::int64_t nonzero_count(ConstView x) {
  if (!has_packed_values("count zeros", x, moved_bytes(x))) return x.count();
  return dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* from = x.data<T>();
    std::int64_t found = 0;
#pragma omp parallel for reduction(+ : found) if (x.count() >= cpu::kSerialBelow)
    for (std::int64_t i = 0; i < x.count(); ++i) found += is_plain_zero(from[i]) ? 0 : 1;
    return found;
  });
}

SparseTensor to_sparse(ConstView x, std::int64_t nonzeros) {
  SparseTensor out{Tensor({packed_bytes(x.count())}, DType::U8, x.device()),
                   Tensor({nonzeros}, x.dtype(), x.device())};
  const double moved = moved_bytes(x) + moved_bytes(out.bits) + moved_bytes(out.values);
  if (!has_packed_values("to sparse", x, moved)) return out;
  auto* bits = out.bits.data<std::uint8_t>();
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* from = x.data<T>();
    T* values = out.values.data<T>();
    write_bits(bits, x.count(), [from](std::int64_t i) { return !is_plain_zero(from[i]); });
    const auto begins = value_begins("to_sparse", out.bits, nonzeros);
    for_value_blocks(begins, x.count(), [=](const Range& elements, std::int64_t at) {
      for (std::int64_t i = elements.begin; i < elements.end; ++i)
        if (is_set(bits, i)) values[at++] = from[i];
    });
  });
  return out;
}

void from_sparse(View out, const SparseTensor& x) {
  if (x.bits.count() != packed_bytes(out.count()) || x.values.dtype() != out.dtype())
    fail(fmt::format("from_sparse: out is {} {}, found {} bytes of bits and values in {}",
                     out.shape().to_string(), name_of(out.dtype()), x.bits.count(),
                     name_of(x.values.dtype())));
  const double moved = moved_bytes(out) + moved_bytes(x.bits) + moved_bytes(x.values);
  if (!has_packed_values("from sparse", out, moved)) return;
  const auto* bits = x.bits.data<std::uint8_t>();
  const auto begins = value_begins("from_sparse", x.bits, x.values.count());
  dispatch(out.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* values = x.values.data<T>();
    T* to = out.data<T>();
    for_value_blocks(begins, out.count(), [=](const Range& elements, std::int64_t at) {
      for (std::int64_t i = elements.begin; i < elements.end; ++i)
        to[i] = is_set(bits, i) ? values[at++] : T(0.0f);
    });
  });
}

}  // namespace aisc
