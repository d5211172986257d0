#include "13_vision/channel_moments.h"

#include "13_vision/of_type.h"
#include "common/comm/host_values.h"
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

ChannelMoments merged(const ChannelMoments& a, const ChannelMoments& b) {
  if (a.count == 0) return b;
  if (b.count == 0) return a;
  ChannelMoments all{a.count + b.count, a.means, a.squares};
  for (std::size_t c = 0; c < all.means.size(); ++c) {
    const double d = b.means[c] - a.means[c];
    all.means[c] += d * b.count / all.count;
    all.squares[c] += b.squares[c] + d * d * a.count * b.count / all.count;
  }
  return all;
}

ChannelMoments moments_of_all(Communicator& ranks, const ChannelMoments& mine) {
  const std::size_t C = mine.means.size(), numbers = 2 * C + 1;
  const auto n = static_cast<std::size_t>(ranks.size());
  std::vector<double> sent{mine.count}, all(n * numbers);
  sent.insert(sent.end(), mine.means.begin(), mine.means.end());
  sent.insert(sent.end(), mine.squares.begin(), mine.squares.end());
  CpuDevice host;
  const auto view = [&](std::vector<double>& values) {
    return View(values.data(), {static_cast<Index>(values.size())}, DType::F64, host);
  };
  // comm: each rank's count, means and squares, (2 C + 1) * 8 bytes, to all ranks
  ranks.all_gather(ConstView(view(sent)), view(all)).wait();
  ChannelMoments together{0, std::vector<double>(C), std::vector<double>(C)};
  for (std::size_t r = 0; r < n; ++r) {
    const auto begin = all.begin() + static_cast<Index>(r * numbers), means = begin + 1;
    const auto squares = means + static_cast<Index>(C), end = squares + static_cast<Index>(C);
    together = merged(together, {*begin, {means, squares}, {squares, end}});
  }
  return together;
}

void sums_of_all(Communicator& ranks, std::span<double> sums) {
  sum_of_all(ranks, sums);  // comm: the sums of a backward, 8 bytes each, of all ranks
}

}  // namespace aisc
