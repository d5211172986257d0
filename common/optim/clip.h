// Clipping by the global norm (Pascanu, Mikolov, Bengio, 2013).
#pragma once

#include <span>

#include "common/core/tensor.h"

namespace aisc {

// The Euclidean norm of all gradients together. NaN or infinite if one of them is.
double global_norm(std::span<const ConstView> gradients);

// The factor that brings gradients of this norm down to `max_norm`, 1 where they are within it:
// min(1, max_norm / (norm + 1e-6)), as PyTorch's clip_grad_norm_ and Megatron-LM compute it, so
// that runs can be compared to the last digits. NaN if the norm is. max_norm 0 means no clipping.
// Throws Error if max_norm is negative.
double clip_factor(double norm, double max_norm);

}  // namespace aisc
