#include "12_encoders/more/blank_samples.h"

#include <numeric>
#include <vector>

#include "12_encoders/padded_batch.h"
#include "common/core/range.h"

namespace aisc {
namespace {

using SomeIds = std::vector<std::int32_t>;

}  // namespace

Batch BlankPairs::batch(Device& device, std::int64_t /*first*/, std::int64_t count) const {
  MaskedPair full{.tokens = SomeIds(index(T_)),
                  .segments = SomeIds(index(T_)),
                  .places = SomeIds(index(K_)),
                  .targets = SomeIds(index(K_))};
  std::iota(full.places.begin(), full.places.end(), 0);
  return pad_masked_pairs(device, std::vector(index(count), full), T_, K_, 0);
}

double BlankPairs::terms(std::int64_t /*first*/, std::int64_t count) const {
  return static_cast<double>(count * K_);
}

Batch BlankTranslations::batch(Device& device, std::int64_t /*first*/, std::int64_t count) const {
  return pad_pairs(device, std::vector(index(count), SomeIds(index(S_))),
                   std::vector(index(count), SomeIds(index(T_ - 1))), {}, S_, T_);
}

double BlankTranslations::terms(std::int64_t /*first*/, std::int64_t count) const {
  return static_cast<double>(count * T_);
}

}  // namespace aisc
