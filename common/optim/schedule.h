// The learning rate over the run: a warm-up, then a decay.
#pragma once

#include <cstdint>

namespace aisc {

// From the first step to the peak, at the end of the warm-up: by equal steps (Goyal et al., 2017),
// or as the logarithm of the step, steep at first (DeepSpeed's standard).
enum class Warmup { Linear, Log };
// From there to the floor: half a cosine (Loshchilov and Hutter, 2017), or a straight line.
enum class Decay { Cosine, Linear };

struct RateSchedule {
  double peak;                    // reached at the end of the warm-up, if there is one
  double floor = 0;               // reached at the last step
  std::int64_t warmup_steps = 0;  // W; of a linear warm-up step 0 takes peak / W
  std::int64_t total_steps = 1;   // N
  Warmup warmup = Warmup::Linear;
  Decay decay = Decay::Cosine;

  // Steps are counted from 0; floor beyond the last. Step s takes of the peak
  //   s < W:   (s + 1) / W,   or   log(s + 2) / log(W), at most 1;
  // then of the way from floor to peak
  //   half a cosine, 1 at step W and 0 at step N - 1;   or   (N - 1 - s) / (N - W).
  double at(std::int64_t step) const;
};

}  // namespace aisc
