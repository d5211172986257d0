#include "07_sequence_parallel/merge.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/ops/ops.h"

namespace aisc {

Merged merged(double a, double b) {
  // LAB 07.3: two softmaxes become one
  // > std::exp overflows above 709 and is 0 below -745. Which of a and b may be taken out of both
  // > exponents? And what is left where there is no key at all?
  const double largest = std::max(a, b);
  if (largest == -std::numeric_limits<double>::infinity()) return {largest, 0, 0};
  const double of_a = std::exp(a - largest), of_b = std::exp(b - largest), sum = of_a + of_b;
  return {largest + std::log(sum), of_a / sum, of_b / sum};
  // END LAB 07.3
}

namespace {

template <class S>
void merge_rows(const Tensor& lse, const Tensor& block_lse, const Tensor& of_out,
                const Tensor& of_block) {
  const Shape& shape = lse.shape();  // (B, H, T); the factors are (B, T, H), as rows of out
  const std::int64_t H = shape[1], T = shape[2];
  S *sums = lse.data<S>(), *keep = of_out.data<S>(), *add = of_block.data<S>();
  const S* others = block_lse.data<S>();
  for (std::int64_t i = 0; i < shape.count(); ++i) {
    const std::int64_t b = i / (H * T), h = i / T % H, t = i % T, row = (b * T + t) * H + h;
    const Merged both = merged(static_cast<double>(sums[i]), static_cast<double>(others[i]));
    sums[i] = static_cast<S>(both.lse);
    keep[row] = static_cast<S>(both.of_a);
    add[row] = static_cast<S>(both.of_b);
  }
}

}  // namespace

void merge_attention(View out, View lse, ConstView block_out, ConstView block_lse) {
  Device& device = out.device();
  CpuDevice cpu;
  const bool numbers = device.kind() != DeviceKind::Meta;
  Device& host = numbers ? static_cast<Device&>(cpu) : device;
  const std::int64_t rows = lse.count(), D = rows > 0 ? out.count() / rows : 1;
  const auto on_host = [&](const ConstView& x) {
    Tensor copy(x.shape(), x.dtype(), host, Purpose::Workspace);
    device.copy(copy, x);
    return copy;
  };
  const Tensor sums = on_host(lse), others = on_host(block_lse);
  const Tensor of_out({rows}, lse.dtype(), host, Purpose::Workspace),
      of_block({rows}, lse.dtype(), host, Purpose::Workspace);
  if (numbers && lse.dtype() == DType::F64) merge_rows<double>(sums, others, of_out, of_block);
  if (numbers && lse.dtype() == DType::F32) merge_rows<float>(sums, others, of_out, of_block);
  const auto on_device = [&](const Tensor& x) {
    Tensor copy(x.shape(), x.dtype(), device, Purpose::Workspace);
    device.copy(copy, x);
    return copy;
  };
  device.copy(lse, sums);
  const View all = out.reshaped({rows, D});
  ops::scale_rows(all, all, on_device(of_out));
  ops::scale_rows(all, block_out.reshaped({rows, D}), on_device(of_block), ops::Into::Accumulate);
}

}  // namespace aisc
