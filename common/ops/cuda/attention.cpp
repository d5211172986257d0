#include "common/ops/cuda/attention.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/core/error.h"

namespace aisc::cuda {
namespace {

constexpr std::int64_t kGridLimit = std::numeric_limits<std::int32_t>::max();
constexpr int kColumnsOfTensorCores = 128;

int checked_int(const char* what, std::int64_t value) {
  if (value > kGridLimit)
    fail(std::string("attention on a GPU: ") + what + " is " + std::to_string(value) +
         ", expected less than 2^31");
  return static_cast<int>(value);
}

// Of (B, tokens, H * parts * D).
Strides strides_of(const AttentionSizes& z, std::int64_t tokens, std::int64_t parts) {
  const std::int64_t head = parts * z.D, token = z.H * head;
  return {head, token, tokens * token};
}

}  // namespace

AttentionSizes::AttentionSizes(std::int64_t samples, std::int64_t queries, std::int64_t keys,
                               std::int64_t heads, std::int64_t columns, std::int64_t parts)
    : B(samples),
      T(checked_int("the number of tokens", queries)),
      K(checked_int("the number of keys", keys)),
      H(checked_int("the number of heads", heads)),
      D(checked_int("the size of a head", columns)),
      q(strides_of(*this, T, parts)),
      kv(strides_of(*this, K, parts)),
      out(strides_of(*this, T, 1)),
      value(parts == 1 ? samples * keys * heads * columns : columns),
      scale(1.0 / std::sqrt(static_cast<double>(D))) {}

AttentionSizes::AttentionSizes(const ConstView& queries, const ConstView& keys_values,
                               std::int64_t heads)
    : AttentionSizes(queries.shape()[0], queries.shape()[1], keys_values.shape()[2], heads,
                     queries.shape()[2] / heads, 1) {}

AttentionSizes::AttentionSizes(const ConstView& qkv, std::int64_t heads)
    : AttentionSizes(qkv.shape()[0], qkv.shape()[1], qkv.shape()[1], heads,
                     qkv.shape()[2] / (3 * heads), 3) {}

unsigned attention_blocks(const AttentionSizes& z, int tokens, int rows) {
  const std::int64_t tiles = (tokens + std::int64_t{rows} - 1) / rows;
  return static_cast<unsigned>(checked_int("the number of blocks", tiles * z.H * z.B));
}

bool suits_tensor_cores(const AttentionSizes& z, DType dtype,
                        std::initializer_list<ConstView> all) {
  return (dtype == DType::BF16 || dtype == DType::F16) && z.D % 8 == 0 &&
         z.D <= kColumnsOfTensorCores &&
         std::all_of(all.begin(), all.end(), [](const ConstView& x) {
           return reinterpret_cast<std::uintptr_t>(x.raw()) % 16 == 0;
         });
}

}  // namespace aisc::cuda
