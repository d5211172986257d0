// What the machine of a run could do at most: the denominator of its utilisation.
#pragma once

#include "common/comm/launch.h"
#include "common/core/system/peak.h"

namespace aisc {

// The peak of all ranks' devices in a precision. Processors are measured in slices (peak.h), by all
// ranks at once, each on cores of its own; ranks that share cores measure each core once. Other
// programs may keep the peak low for as long as one looks, so a run looks again while it trains.
// GPUs are measured once, by large products. Collective: all calls, on all ranks, which all know
// the same.
class PeakMeter {
 public:
  // Measures; about 0.4 s. Where the peak is `given`, in FLOP/s, nothing is measured, now or later.
  // `rank` must outlive the meter.
  PeakMeter(const Rank& rank, DType dtype, double given = 0);

  void measure_again();                     // one slice, 6 ms
  double flops() const { return flops_; }   // FLOP/s: the most that was seen
  int threads() const { return threads_; }  // that compute, of all ranks
  // The cores that this rank measures: of the usable ones so many, from this number on.
  int core_count() const { return measuring_; }
  int first_core() const { return first_core_; }

 private:
  PeakSlice slice() const;

  const Rank& rank_;
  DType arithmetic_;
  bool only_once_ = false;  // on GPUs, or never: given
  int first_core_ = 0;
  int measuring_ = 0;
  int threads_ = 0;
  double flops_ = 0;
};

}  // namespace aisc
