#include "13_vision/batch_norm.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "13_vision/of_type.h"
#include "common/core/error.h"
#include "common/ops/cpu/parallel.h"

namespace aisc {
namespace {

using Index = std::int64_t;

// What forward keeps for backward beside x: (2 C + 1) F64.
struct Statistics {
  explicit Statistics(const Tensor& tensor)
      : C((tensor.count() - 1) / 2),
        means(tensor.data<double>()),
        rstds(means + C),
        count(means + 2 * C) {}
  Index C;
  double *means, *rstds;  // (C)
  double* count;          // values of a channel, of all ranks that share the batch
};

// Calls f(c, first element) for each channel of each image, P elements; channels are shared out, so
// that a thread has all images of its own.
template <class F>
void for_each_channel(const Shape& x, F f) {
  const Index N = x[0], C = x[1], P = x[2] * x[3];
  cpu::parallel_rows(C, N * P, [=](Index c) {
    for (Index n = 0; n < N; ++n) f(c, (n * C + c) * P);
  });
}

}  // namespace

BatchNorm::BatchNorm(const Rank& rank, const std::string& name, std::int64_t channels,
                     const Options& options)
    : Layer(rank, name),
      options_(options),
      weight_(whole_parameter(name + ".weight", {channels}, Init::constant(1), false)),
      bias_(whole_parameter(name + ".bias", {channels}, Init::constant(0), false)),
      running_(Tensor::zeros({2, channels}, DType::F64, rank.device, Purpose::Parameters)) {
  for (double& variance : running_variance().values<double>()) variance = 1;
  if (options_.batch && options_.batch->size() == 1) options_.batch = nullptr;  // it has all
}

// Means, and 1 / sqrt(variance + epsilon): of the batch, which moves the running ones, or running.
Tensor BatchNorm::statistics(ConstView x, const Pass& pass) const {
  const Index C = weight_.shape[0];
  Tensor tensor({2 * C + 1}, DType::F64, x.device());
  const Statistics s(tensor);
  double *const mean = running_mean().data<double>(), *const variance =
                                                          running_variance().data<double>();
  if (!pass.training) {
    *s.count = 0;
    for (Index c = 0; c < C; ++c) {
      s.means[c] = mean[c];
      s.rstds[c] = 1 / std::sqrt(variance[c] + options_.epsilon);
    }
    return tensor;
  }
  ChannelMoments batch = channel_moments(x);
  if (options_.batch) batch = moments_of_all(*options_.batch, batch);
  *s.count = batch.count;
  if (batch.count < 2)
    fail(fmt::format("batch norm {}: {} values a channel, expected 2 or more: one has no spread",
                     name_, batch.count));
  for (Index c = 0; c < C; ++c) {
    const double squares = batch.squares[static_cast<std::size_t>(c)];
    s.means[c] = batch.means[static_cast<std::size_t>(c)];
    s.rstds[c] = 1 / std::sqrt(squares / batch.count + options_.epsilon);
    if (pass.recompute) continue;
    mean[c] += options_.momentum * (s.means[c] - mean[c]);
    variance[c] += options_.momentum * (squares / (batch.count - 1) - variance[c]);
  }
  return tensor;
}

Tensor BatchNorm::forward(Tensor x, Saved& saved, const Pass& pass) const {
  const auto span = rank_.trace.span("batch norm", name_);
  require_images("batch norm", x);
  if (x.shape()[1] != weight_.shape[0])
    fail(fmt::format("batch norm {}: x is {}, expected {} channels", name_, x.shape().to_string(),
                     weight_.shape[0]));
  Tensor kept = statistics(x, pass);
  const Statistics s(kept);
  Tensor y(x.shape(), x.dtype(), x.device());  // (N, C, H, W)
  of_type(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T *const in = x.data<T>(), *const weight = weight_.value().data<T>(),
                   *const bias = bias_.value().data<T>();
    T* const out = y.data<T>();
    const Index P = x.shape()[2] * x.shape()[3];
    for_each_channel(x.shape(), [=](Index c, Index first) {
      const double factor = s.rstds[c] * static_cast<double>(weight[c]);
      const T mean = static_cast<T>(s.means[c]), scale = static_cast<T>(factor), shift = bias[c];
      for (Index p = first; p < first + P; ++p) out[p] = (in[p] - mean) * scale + shift;
    });
  });
  saved.push(std::move(x));
  saved.push(std::move(kept));
  return y;
}

// With h = (x - mean) rstd and the sums over all n values of a channel, of all ranks:
//   dx = weight rstd (dy - sum(dy) / n - h sum(dy h) / n),   dweight = sum(dy h),   dbias = sum(dy)
// The two sums in dx are what each value has done to mean and variance. Running statistics are
// constants: there dx = weight rstd dy.
Tensor BatchNorm::backward(Tensor dy, Saved& saved, const Pass& pass) {
  const auto span = rank_.trace.span("batch norm", name_);
  const Tensor kept = saved.pop(), x = saved.pop();
  const Statistics s(kept);
  const Index C = s.C, P = x.shape()[2] * x.shape()[3];
  std::vector<double> sums(static_cast<std::size_t>(2 * C));  // of dy, and of dy h
  const bool adds = weight_.next_grad() == ops::Into::Accumulate;
  bias_.next_grad();
  Tensor dx(x.shape(), x.dtype(), x.device());  // (N, C, H, W)
  of_type(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T *const in = x.data<T>(), *const from = dy.data<T>();
    double *const dy_sum = sums.data(), *const dyh_sum = dy_sum + C;
    for_each_channel(x.shape(), [=](Index c, Index first) {
      const double mean = s.means[c];
      double dy_here = 0, dyx_here = 0;
#pragma omp simd reduction(+ : dy_here, dyx_here)
      for (Index p = first; p < first + P; ++p) {
        const auto d = static_cast<double>(from[p]);
        dy_here += d;
        dyx_here += d * (static_cast<double>(in[p]) - mean);
      }
      dy_sum[c] += dy_here;
      dyh_sum[c] += dyx_here * s.rstds[c];
    });
    // The parameters' gradients are of this rank's images, before the sums become those of all.
    T *const dweight = weight_.grad().data<T>(), *const dbias = bias_.grad().data<T>();
    for (Index c = 0; c < C; ++c) {
      dweight[c] = static_cast<T>(dyh_sum[c] + (adds ? static_cast<double>(dweight[c]) : 0));
      dbias[c] = static_cast<T>(dy_sum[c] + (adds ? static_cast<double>(dbias[c]) : 0));
    }
    if (pass.training && options_.batch) sums_of_all(*options_.batch, sums);
    const T* const weight = weight_.value().data<T>();
    T* const out = dx.data<T>();
    const double share = pass.training ? 1 / *s.count : 0;
    for_each_channel(x.shape(), [=](Index c, Index first) {
      const double rstd = s.rstds[c], slope = rstd * static_cast<double>(weight[c]);
      const T mean = static_cast<T>(s.means[c]), scale = static_cast<T>(slope);
      const T same = static_cast<T>(slope * dy_sum[c] * share);
      const T along = static_cast<T>(slope * rstd * dyh_sum[c] * share);
      for (Index p = first; p < first + P; ++p)
        out[p] = from[p] * scale - same - (in[p] - mean) * along;
    });
  });
  return dx;
}

}  // namespace aisc
