// Speed for memory: a convolution as one product of matrices, for which its input is written out
// several times, or as loops that need no memory, or in between, whatever is free. vDNN (Rhu et
// al., arXiv 1602.08124) chooses such algorithms layer by layer.
#pragma once

#include <cstdint>

#include "06_tensor_parallel/more/convolution.h"

namespace aisc {

// How many rows of a sample's output are made at a time, and what memory that takes beside x,
// filters and y.
struct ConvolutionPlan {
  std::int64_t rows = 0;  // 0: convolution(), loops that need none
  std::int64_t workspace_bytes = 0;
};

// The plan with most rows whose workspace is at most `free_bytes`. y (N, F, I, J) and filters
// (F, C, A, B) have elements of e bytes. Whole samples, I rows, take e C A B I J bytes. Fewer, r,
// take e (C A B + F) r J: their part of y is not in one piece, so it is made beside it and copied.
// Only shapes and types are looked at. Throws Error for shapes that are not these, and for
// free_bytes < 0.
ConvolutionPlan plan_convolution(ConstView y, ConstView filters, std::int64_t free_bytes);

// What convolution() computes, up to rounding, for F32 and F64, on the CPU or without numbers:
// unfolds x into a matrix, a column an output, and multiplies the filters by it. Takes the plan's
// bytes of Purpose::Workspace, which are given back when it returns; matmul may take more for
// itself. Throws Error as convolution() does, and for a plan of other sizes.
void convolution_by_plan(View y, ConstView x, ConstView filters, const ConvolutionPlan& plan,
                         const ConvolutionOptions& options = {});

}  // namespace aisc
