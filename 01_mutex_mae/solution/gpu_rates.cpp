#include "01_mutex_mae/gpu_rates.h"

#include <algorithm>
#include <cmath>

#include "01_mutex_mae/rounds.h"
#include "01_mutex_mae/variants.h"
#include "common/core/error.h"

namespace aisc {

GpuRates measure_on_gpu(const Problem& problem, Device& gpu, int rounds) {
  const GpuProblem there(problem, gpu);
  const Tensor copied(there.x.shape(), DType::F32, gpu);
  const auto copy = [&] {
    gpu.copy(copied, there.x);
    gpu.synchronize();
    return 0.0;
  };
  std::vector<Turn> turns{{.call = copy}};
  for (const GpuVariant& variant : gpu_variants())
    turns.push_back({.call = [run = variant.run, &there] { return run(there); }});
  take_turns(turns, rounds, 0);

  double sum = 0;
  for (std::int64_t i = 0; i < problem.N; ++i) sum += static_cast<double>(error_of(problem, i));
  const double expected = mean_error(sum, problem.N);
  const auto bytes = static_cast<double>(there.x.bytes() + there.y.bytes());
  GpuRates rates;
  rates.copy_bytes_per_second = 2 * static_cast<double>(copied.bytes()) / median(turns[0].seconds);
  for (std::size_t k = 1; k < turns.size(); ++k) {
    const GpuVariant variant = gpu_variants()[k - 1];
    const double seconds = median(turns[k].seconds);
    double worst = 0;
    for (const double mean : turns[k].results)
      worst = std::max(worst, std::fabs(mean - expected) / expected);
    if (!(worst <= kOrderOfProducts))
      fail(variant.name + ": off by " + std::to_string(worst) + " of the mean");
    rates.sums.push_back({variant, seconds, bytes / seconds, worst});
  }
  return rates;
}

}  // namespace aisc
