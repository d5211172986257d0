// Tensors in F8: a byte a number, and a scale for each block of them. Micikevicius et al., "FP8
// formats for deep learning", arXiv 2209.05433; blocks as DeepSeek-V3 has them, arXiv 2412.19437,
// section 3.3.2.
#pragma once

#include <cstdint>

#include "10_model_compression/number_format.h"
#include "common/core/tensor.h"

namespace aisc {

// The numbers of a matrix that share a scale: blocks of so many rows and columns, smaller ones at
// the edges. 0: all there are.
struct ScaleBlocks {
  std::int64_t rows = 0, columns = 0;
};
inline constexpr ScaleBlocks kWholeTensor{};           // one scale
inline constexpr ScaleBlocks kRowBlocks{1, 128};       // of activations and their gradients
inline constexpr ScaleBlocks kSquareBlocks{128, 128};  // of weights

// The smallest power of two s for which largest / s is in the format's range; 1 for 0. A number is
// kept as encode(number / s) and means decode(code) * s. Powers of two: neither the division nor
// the product rounds, so that a product of two tensors in F8 is exactly that of their decoded
// numbers in F32. 2^-100 at least: then decoded numbers are normal ones in BF16.
float f8_scale(const NumberFormat& format, float largest);

// The largest |x| of those that are finite; 0 of none, and on a device without numbers. Waits for a
// GPU.
float largest_magnitude(ConstView x);

// x (..., C), seen as rows (N, C), in a format of 8 bits.
struct F8Tensor {
  NumberFormat format;
  ScaleBlocks blocks;
  Tensor codes;   // x's shape, U8
  Tensor scales;  // F32: (1) of the whole, else (blocks of rows, blocks of columns)
};

// All of these work on the host and, with the same bits, on a GPU; on a device without numbers they
// compute nothing. Formats are of F8, tensors of any floating type. What is rounded beyond the
// largest number saturates; infinity and NaN stay what they are (E4M3 has only NaN), so that an
// overflow elsewhere is seen. Throws Error for two that do not fit together, and for a GPU's
// tensors in a program without CUDA.

// In two passes: scales are of the numbers themselves ("current"), each block's from its largest.
F8Tensor to_f8(ConstView x, const NumberFormat& format, const ScaleBlocks& blocks);
// With one scale, a power of two, that was known before: one pass.
F8Tensor to_f8(ConstView x, const NumberFormat& format, float scale);
// Out (as many elements): the decoded numbers, rounded to its type if that has fewer bits.
void from_f8(View out, const F8Tensor& x);

// out = what x is after a way through to_f8() and from_f8(), without the codes. May be x.
void round_to_f8(View out, ConstView x, const NumberFormat& format, const ScaleBlocks& blocks);
// The same with a scale that was known before: one pass, and what is beyond it saturates.
void round_to_f8(View out, ConstView x, const NumberFormat& format, float scale);

}  // namespace aisc
