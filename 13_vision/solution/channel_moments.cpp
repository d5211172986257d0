#include "13_vision/channel_moments.h"

#include "13_vision/of_type.h"
#include "common/core/range.h"
#include "common/ops/cpu/parallel.h"

namespace aisc {
namespace {

using Index = std::int64_t;

}  // namespace

ChannelMoments channel_moments(ConstView x) {
  require_images("channel moments", x);
  const Index N = x.shape()[0], C = x.shape()[1], P = x.shape()[2] * x.shape()[3];
  ChannelMoments moments{static_cast<double>(N * P), std::vector<double>(index(C)),
                         std::vector<double>(index(C))};
  if (N * P == 0) return moments;
  of_type(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* const in = x.data<T>();
    double *const means = moments.means.data(), *const squares = moments.squares.data();
    cpu::parallel_rows(C, N * P, [=](Index c) {
      // Twice over the channel: its mean must be known before a value can be centred.
      double sum = 0, centred = 0;
      for (Index n = 0; n < N; ++n) {
        const T* const from = in + (n * C + c) * P;
#pragma omp simd reduction(+ : sum)
        for (Index p = 0; p < P; ++p) sum += static_cast<double>(from[p]);
      }
      const double mean = sum / static_cast<double>(N * P);
      for (Index n = 0; n < N; ++n) {
        const T* const from = in + (n * C + c) * P;
#pragma omp simd reduction(+ : centred)
        for (Index p = 0; p < P; ++p) {
          const double away = static_cast<double>(from[p]) - mean;
          centred += away * away;
        }
      }
      means[c] = mean;
      squares[c] = centred;
    });
  });
  return moments;
}

}  // namespace aisc
