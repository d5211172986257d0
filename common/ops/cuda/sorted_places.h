// The places at which each id occurs, side by side and in their order.
#pragma once

#include <cstdint>

#include "common/core/tensor.h"
#include "common/ops/ops.h"

namespace aisc::cuda {

// (ids[n], n) for n of 0 .. N - 1, sorted by id; equal ids keep their order. On the device of
// `ids` (N) I32, N < 2^31, in the order of its stream. Ids are numbered from part.begin on; what is
// then outside [0, V) becomes V. An id that is not in the whole, either, is a fault with this text
// (cuda_device.h), of which place, value and limit are n, the id and how many there are.
class SortedPlaces {
 public:
  SortedPlaces(const char* what, const ConstView& ids, std::int64_t V, const ops::TablePart& part,
               const char* fault_text);

  const std::uint32_t* ids() const { return ids_; }        // (N)
  const std::uint32_t* places() const { return places_; }  // (N)

 private:
  Tensor scratch_;
  const std::uint32_t *ids_, *places_;
};

}  // namespace aisc::cuda
