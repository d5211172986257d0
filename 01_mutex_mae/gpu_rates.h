// How fast each sum on a GPU is, measured in turns with a copy in the same memory.
#pragma once

#include <vector>

#include "01_mutex_mae/mae_gpu.h"

namespace aisc {

struct GpuRate {
  GpuVariant variant;
  double seconds;           // of a call: the median over rounds
  double bytes_per_second;  // of samples and targets, each read once
  double error;             // the worst, relative to the serial mean
};

struct GpuRates {
  double copy_bytes_per_second;  // read and written
  std::vector<GpuRate> sums;     // as gpu_variants()
};

// Throws Error if a mean is off by more than products in another order can be.
GpuRates measure_on_gpu(const Problem& problem, Device& gpu, int rounds);

}  // namespace aisc
