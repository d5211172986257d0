// Tensors that forward leaves behind, in fewer bytes and without a loss: one bit for each answer to
// a yes or no, and tensors of many zeros without these. Jain et al., "Gist: Efficient data encoding
// for deep neural network training", ISCA 2018.
//
// All of these work on the host's memory; on a device without numbers tensors have the bytes that
// they would have, and nothing is computed. Throws Error for a GPU's tensors, and for two that do
// not fit together.
#pragma once

#include <cstdint>

#include "common/core/tensor.h"

namespace aisc {

// Bits lie in U8, (ceil(n / 8)) of n elements: element i is bit i % 8 of byte i / 8, counted from
// the lowest; what is left of the last byte is 0. 1 0 1 1 0 0 0 0 | 1 is the bytes 13 and 1.
inline std::int64_t packed_bytes(std::int64_t count) { return (count + 7) / 8; }

// Of a mask in U8, as dropout keeps it: an eighth of its bytes. Throws Error for a number that is
// neither 0 nor 1.
Tensor pack_mask(ConstView mask);
// Of a floating x: whether x > 0, all that the backward of a ReLU asks of its input or output. A
// 32nd of F32's bytes. Where the next layer needs more of the output than its sign, a product's
// weight gradient say, this alone does not do.
Tensor pack_signs(ConstView x);
// Out (n), U8 or floating: the bits as 0 and 1.
void unpack_bits(View out, ConstView bits);

// Which elements of a floating tensor are not 0, a bit each, and these alone in their order. -0 is
// not 0 here: what comes back has the same bits. Smaller than the tensor where more than one of 8 k
// elements is 0, of numbers of k bytes: where an element costs k bytes and has to save a bit.
// Gist has CSR with indices of a byte; bits need less up to 7 zeros of 8.
struct SparseTensor {
  Tensor bits;    // U8, (ceil(n / 8))
  Tensor values;  // (elements that are not 0), x's type
};
// Of a device without numbers: all.
std::int64_t nonzero_count(ConstView x);
SparseTensor to_sparse(ConstView x, std::int64_t nonzeros);  // nonzero_count(x)
void from_sparse(View out, const SparseTensor& x);

}  // namespace aisc
