// The learning rate over the run: a linear warm-up, then half a cosine (Loshchilov and Hutter,
// 2017).
#pragma once

#include <cstdint>

namespace aisc {

struct CosineSchedule {
  double peak;                    // reached at the end of the warm-up
  double floor = 0;               // reached at the last step
  std::int64_t warmup_steps = 0;  // step 0 takes peak / warmup_steps
  std::int64_t total_steps = 1;

  double at(std::int64_t step) const;  // steps are counted from 0; floor beyond the last
};

}  // namespace aisc
