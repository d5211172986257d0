// What a device does with the operations of a GPT, each alone: bytes and FLOPs a second. Nothing
// here knows what device it is: a GPU is what it is for.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/core/tensor.h"

namespace aisc {

struct GpuBenchSizes {
  std::int64_t rows = 131072;        // of the kernels by rows, N
  std::int64_t width = 768;          // C
  std::int64_t logit_rows = 8192;    // rows of logits
  std::int64_t vocabulary = 50304;   // columns of logits, rows of the embedding's table
  std::int64_t weights = 124475904;  // elements of one update
  std::int64_t batch = 32, heads = 12, context = 1024;  // of attention; width / heads is a head's
  std::int64_t copy_bytes = std::int64_t{1} << 30;      // read, and as many written
  double seconds = 0.005;  // that a measurement takes at least; each is repeated 7 times
};

// The median of 7 times that `work` takes, after one run of warm-up; repeated back to back until a
// measurement takes `least_seconds`, with the device waited for at the end of each.
double median_seconds(Device& device, double least_seconds, const std::function<void()>& work);

// Bytes/s of copying `bytes` from one place of the device's memory to another: read and written.
double measure_copy_bandwidth(Device& device, std::int64_t bytes, double least_seconds);

struct KernelRate {
  std::string name;  // "layer_norm_backward"
  double bytes;      // that it has to read and write, each once
  double seconds;
  double bytes_per_second() const { return bytes / seconds; }
};

// The operations that are no products, in `dtype`, in the order of a training step. `each` is told
// of every one as it is measured.
void measure_kernels(Device& device, DType dtype, const GpuBenchSizes& sizes,
                     const std::function<void(const KernelRate&)>& each);

struct ProductRate {
  std::string name;  // "fc gelu"
  double flops, seconds;
};

// The products of a GPT's step, each forward, of the gradient of its input and of its weight, in
// `dtype`, for batch x context rows; those that GELU or its gradient belongs to also without it.
void measure_products(Device& device, DType dtype, const GpuBenchSizes& sizes,
                      const std::function<void(const ProductRate&)>& each);

struct AttentionRate {
  double forward_seconds, backward_seconds;
  double forward_flops, backward_flops;  // causal: half of all pairs; 2 and 5 products
};
AttentionRate measure_attention(Device& device, DType dtype, const GpuBenchSizes& sizes);

}  // namespace aisc
