// What the collectives of NCCL compute. Each step of a reduction is rounded to the element type.
#include <gpu/intrinsics.h>

#include <cstring>
#include <type_traits>

#include "emulated_gpu/nccl_clique.h"

namespace aisc::emulated_gpu {
namespace {

template <float (*widen)(std::uint16_t), std::uint16_t (*narrow)(float)>
struct Half {
  std::uint16_t bits = 0;

  Half() = default;
  explicit Half(float value) : bits(narrow(value)) {}
  explicit operator float() const { return widen(bits); }
};
using Float16 = Half<gpu::f16_value, gpu::f16_bits>;
using BFloat16 = Half<gpu::bf16_value, gpu::bf16_bits>;

// The type that one step is computed in. Integers wrap around.
template <class T>
struct Wide {
  using type = float;
};
template <>
struct Wide<double> {
  using type = double;
};
template <class T>
requires std::is_integral_v<T>
struct Wide<T> {
  using type = T;
};

template <class T>
T combine(T a, T b, ncclRedOp_t op) {
  switch (op) {
    case ncclProd:
      if constexpr (std::is_integral_v<T>)
        return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
      else
        return a * b;
    case ncclMax:
      return a < b ? b : a;
    case ncclMin:
      return b < a ? b : a;
    default:  // sum
      if constexpr (std::is_integral_v<T>)
        return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
      else
        return a + b;
  }
}

using Bytes = std::vector<std::byte>;

template <class T>
Bytes reduce_as(const std::vector<Bytes>& inputs, ncclRedOp_t op) {
  using W = typename Wide<T>::type;
  const std::size_t count = inputs[0].size() / sizeof(T);
  Bytes result = inputs[0];
  for (std::size_t i = 0; i < count; ++i) {
    T sum;
    std::memcpy(&sum, inputs[0].data() + i * sizeof(T), sizeof(T));
    for (std::size_t r = 1; r < inputs.size(); ++r) {
      T next;
      std::memcpy(&next, inputs[r].data() + i * sizeof(T), sizeof(T));
      sum = static_cast<T>(combine(static_cast<W>(sum), static_cast<W>(next), op));
    }
    std::memcpy(result.data() + i * sizeof(T), &sum, sizeof(T));
  }
  return result;
}

Bytes reduce(const std::vector<Bytes>& inputs, ncclDataType_t type, ncclRedOp_t op) {
  switch (type) {
    case ncclUint8:
      return reduce_as<std::uint8_t>(inputs, op);
    case ncclInt32:
      return reduce_as<std::int32_t>(inputs, op);
    case ncclInt64:
      return reduce_as<std::int64_t>(inputs, op);
    case ncclFloat16:
      return reduce_as<Float16>(inputs, op);
    case ncclBfloat16:
      return reduce_as<BFloat16>(inputs, op);
    case ncclFloat64:
      return reduce_as<double>(inputs, op);
    default:
      return reduce_as<float>(inputs, op);
  }
}

}  // namespace

std::size_t bytes_of(ncclDataType_t type) {
  constexpr std::size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kBytes[type];
}

bool Part::agrees_with(const Part& other) const {
  return kind == other.kind && count == other.count && type == other.type && op == other.op &&
         peer == other.peer;
}

std::size_t elements_in(const Part& part, int rank, int size) {
  switch (part.kind) {
    case Part::Kind::Receive:
      return 0;
    case Part::Kind::Broadcast:
      return rank == part.peer ? part.count : 0;
    case Part::Kind::ReduceScatter:
      return static_cast<std::size_t>(size) * part.count;
    default:
      return part.count;
  }
}

std::size_t elements_out(const Part& part, int rank, int size) {
  switch (part.kind) {
    case Part::Kind::Send:
      return 0;
    case Part::Kind::Reduce:
      return rank == part.peer ? part.count : 0;
    case Part::Kind::AllGather:
      return static_cast<std::size_t>(size) * part.count;
    default:
      return part.count;
  }
}

// All inputs are read before anything is written: in place needs no further thought.
void perform(const std::vector<Part>& parts) {
  const auto size = static_cast<int>(parts.size());
  const std::size_t bytes = parts[0].count * bytes_of(parts[0].type);
  if (bytes == 0) return;
  std::vector<Bytes> inputs;
  Bytes joined;  // what all ranks gave, in the order of their numbers
  for (int r = 0; r < size; ++r) {
    const Part& part = parts[static_cast<std::size_t>(r)];
    const auto* in = static_cast<const std::byte*>(part.in);
    inputs.emplace_back(in, in + elements_in(part, r, size) * bytes_of(part.type));
    joined.insert(joined.end(), inputs.back().begin(), inputs.back().end());
  }
  const auto kind = parts[0].kind;
  if (kind == Part::Kind::AllReduce || kind == Part::Kind::Reduce ||
      kind == Part::Kind::ReduceScatter)
    joined = reduce(inputs, parts[0].type, parts[0].op);
  for (int r = 0; r < size; ++r) {
    const Part& part = parts[static_cast<std::size_t>(r)];
    const std::size_t out_bytes = elements_out(part, r, size) * bytes_of(part.type);
    auto* out = static_cast<std::byte*>(part.out);
    if (out_bytes == 0) continue;
    const std::size_t own =
        kind == Part::Kind::ReduceScatter ? static_cast<std::size_t>(r) * bytes : 0;
    std::memcpy(out, joined.data() + own, out_bytes);
  }
}

}  // namespace aisc::emulated_gpu
