#include "common/ops/cuda/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
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

}  // namespace

AttentionSizes::AttentionSizes(const ConstView& qkv, std::int64_t heads)
    : B(qkv.shape()[0]),
      T(checked_int("the number of tokens", qkv.shape()[1])),
      H(checked_int("the number of heads", heads)),
      D(checked_int("the size of a head", qkv.shape()[2] / (3 * heads))),
      qkv_row(qkv.shape()[2]),
      out_row(qkv.shape()[2] / 3),
      scale(1.0 / std::sqrt(static_cast<double>(D))) {}

unsigned attention_blocks(const AttentionSizes& z, int rows) {
  const std::int64_t tiles = (z.T + std::int64_t{rows} - 1) / rows;
  return static_cast<unsigned>(checked_int("the number of blocks", tiles * z.H * z.B));
}

bool suits_tensor_cores(const AttentionSizes& z, std::initializer_list<ConstView> tensors) {
  return z.D % 8 == 0 && z.D <= kColumnsOfTensorCores &&
         std::all_of(tensors.begin(), tensors.end(), [](const ConstView& x) {
           return (x.dtype() == DType::BF16 || x.dtype() == DType::F16) &&
                  reinterpret_cast<std::uintptr_t>(x.raw()) % 16 == 0;
         });
}

}  // namespace aisc::cuda
