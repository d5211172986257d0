// For kernels: how one says that its data is wrong.
#pragma once

#include <cuda_runtime.h>

#include "common/core/cuda/cuda_device.h"

namespace aisc {

// What is reported as `text`.
struct Report {
  Fault* fault;
  const char* text;
};

namespace gpu {

// Once there are several, one of them is reported, whichever comes first.
__device__ inline void raise(Fault* fault, const char* text, long long place, long long value,
                             long long limit) {
  if (atomicCAS(&fault->claimed, 0, 1) != 0) return;
  fault->text = text;
  fault->place = place;
  fault->value = value;
  fault->limit = limit;
  __threadfence_system();  // the host, which may look at any time, sees the flag last
  *static_cast<volatile int*>(&fault->raised) = 1;
}

}  // namespace gpu
}  // namespace aisc
