// A kernel whose threads all find their data wrong: thread i the value first + i.
#pragma once

#include "common/core/cuda/cuda_device.h"

namespace aisc {

void raise_fault(CudaDevice& device, const char* text, int first, int threads);

}  // namespace aisc
