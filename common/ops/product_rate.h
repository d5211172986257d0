// What a device makes of matrix products: the denominator of a utilisation.
#pragma once

#include "common/core/tensor.h"

namespace aisc {

// FLOP/s of ops::matmul of square matrices of `dtype` on `device`, transposed as a layer's forward
// is; the median of several. They are of 8192 x 8192 random numbers, or of the first power of two
// from 256 on whose product takes 20 ms. Takes a fraction of a second and gives its memory back.
// Throws Error if that is not there.
double measure_product_rate(Device& device, DType dtype);

}  // namespace aisc
