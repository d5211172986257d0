// What the machine at hand can do, measured: the denominators of every utilisation in this course.
#pragma once

#include <string>

#include "common/core/dtype.h"

namespace aisc {

// Cores that this process may run on (its affinity mask), not those that the machine has.
int available_cores();

// FLOP/s of `threads` threads that do nothing but multiply-adds in registers: F64, F32, or for BF16
// the dot-product instruction where the processor has it (else F32's rate). Takes about 0.1 s.
double measure_peak_flops(DType dtype, int threads);

// What the utilisation of a run in `dtype` is measured against: its peak, or F32's where BF16
// products are better done in F32 (see bf16_dot_is_fast).
double measure_product_peak(DType dtype, int threads);

// Bytes/s of reading 256 MiB, and of a[i] = b[i] + s * c[i] over 3 x 256 MiB (STREAM's triad, which
// counts 12 bytes an element in F32), with `threads` threads. Best of several runs.
double measure_read_bandwidth(int threads);
double measure_triad_bandwidth(int threads);

// True if BF16 dot products are faster here than F32 multiply-adds. Some processors that have the
// instruction run it at half the rate of F32; there products are better done in F32. Measured once
// in about 10 ms.
bool bf16_dot_is_fast();

// One line a GPU, empty where there is none or the program was built without CUDA.
std::string describe_gpus();

}  // namespace aisc
