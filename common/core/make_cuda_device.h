// The part of make_device() for GPUs: in cuda/, or in no_cuda.cpp where this build has no CUDA.
#pragma once

#include <memory>

#include "common/core/device.h"

namespace aisc {

std::unique_ptr<Device> make_cuda_device(const DeviceOptions& options, int node_rank);

}  // namespace aisc
