// Whole numbers between the host, which plans by them, and the device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/core/range.h"
#include "common/core/tensor.h"

namespace aisc {

// (n) I32 on the device.
Tensor ids_on(Device& device, std::span<const std::int32_t> ids);
// The numbers of an I32 tensor: zeros, of a device without numbers.
std::vector<std::int32_t> ids_of(const Tensor& ids);

}  // namespace aisc
