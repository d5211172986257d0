#include "common/ops/product_rate.h"

#include <chrono>
#include <utility>
#include <vector>

#include "common/core/median.h"
#include "common/core/rng.h"
#include "common/ops/ops.h"

namespace aisc {
namespace {

constexpr std::int64_t kSmallest = 256, kLargest = 8192;
constexpr double kLongSeconds = 0.02;  // far above what launching and waiting take
constexpr int kRepetitions = 9;

// Normal values, drawn once for 256 rows' worth of the smallest size and repeated: what the values
// are decides how much power a GPU draws, and with it its clock; zeros would flatter it.
Tensor random_matrix(std::int64_t n, DType dtype, Device& device) {
  constexpr std::int64_t kDrawn = kSmallest * kSmallest;
  CpuDevice host;
  const Tensor drawn({kDrawn}, DType::F32, host), rounded({kDrawn}, dtype, host);
  const Philox random(1, "product rate");
  auto* value = drawn.data<float>();
  for (std::int64_t i = 0; i < kDrawn; ++i)
    value[i] = static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
  ops::cast(rounded, drawn);
  Tensor matrix({n, n}, dtype, device, Purpose::Workspace);  // (n, n)
  for (std::int64_t begin = 0; begin < n * n; begin += kDrawn)
    device.copy(matrix.view().flat(begin, kDrawn), rounded);
  return matrix;
}

double median_seconds(Device& device, std::int64_t n, DType dtype) {
  using Time = std::chrono::steady_clock;
  const Tensor a = random_matrix(n, dtype, device), b = random_matrix(n, dtype, device);
  const Tensor c({n, n}, dtype, device, Purpose::Workspace);  // (n, n)
  std::vector<double> seconds;
  for (int i = 0; i <= kRepetitions; ++i) {
    device.synchronize();
    const auto begin = Time::now();
    ops::matmul(c, a, b, {.transpose = ops::Transpose::Second});
    device.synchronize();
    seconds.push_back(std::chrono::duration<double>(Time::now() - begin).count());
    if (i == 0) seconds.clear();  // the first prepares what the others use
  }
  return median(std::move(seconds));
}

}  // namespace

double measure_product_rate(Device& device, DType dtype) {
  double rate = 0;
  for (std::int64_t n = kSmallest; n <= kLargest; n *= 2) {
    const double seconds = median_seconds(device, n, dtype);
    rate = 2.0 * static_cast<double>(n * n * n) / seconds;
    if (seconds >= kLongSeconds) break;
  }
  device.trim();
  return rate;
}

}  // namespace aisc
