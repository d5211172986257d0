// The memory of the host, in which a model lies that the device has no room for.
#pragma once

#include <memory>

#include "common/comm/rank.h"

namespace aisc {

// Beside rank.device, with books of its own: pinned memory beside a GPU, memory without numbers
// beside a device without. Copies between the two are the device's (Device::copy_async), on
// Queue::ToDevice and Queue::ToHost. Rank's clock must outlive it.
std::shared_ptr<Device> host_memory(const Rank& rank);

}  // namespace aisc
