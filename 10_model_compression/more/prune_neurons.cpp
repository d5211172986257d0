#include "10_model_compression/more/prune_neurons.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/core/error.h"
#include "common/core/range.h"

namespace aisc {
namespace {

// Throws Error for weights that are not those of one MLP.
void check_mlp(const MlpWeights& mlp) {
  const Shape& fc = mlp.fc.shape();
  const Shape& project = mlp.project.shape();
  if (fc.rank() != 2 || project != Shape{fc[1], fc[0]} || mlp.fc_bias.shape() != Shape{fc[0]})
    fail(fmt::format("the weights of an MLP: found {}, {} and {}, expected (H, C), (H) and (C, H)",
                     fc.to_string(), mlp.fc_bias.shape().to_string(), project.to_string()));
}

void check_neurons(const std::vector<std::int64_t>& neurons, std::int64_t H) {
  for (const std::int64_t h : neurons)
    if (h < 0 || h >= H) fail(fmt::format("neuron {} of {}: expected 0 to {}", h, H, H - 1));
}

}  // namespace

std::vector<double> neuron_norms(const MlpWeights& mlp) {
  check_mlp(mlp);
  const std::int64_t H = mlp.fc.shape()[0], C = mlp.fc.shape()[1];
  std::vector<double> norms(index(H));
  dispatch(mlp.fc.dtype(), [&](auto type) {
    using T = decltype(type);
    const auto square = [](T w) { return static_cast<double>(w) * static_cast<double>(w); };
    for (std::int64_t h = 0; h < H; ++h) {
      double sum = square(mlp.fc_bias.data<T>()[h]);
      for (std::int64_t c = 0; c < C; ++c)
        sum += square(mlp.fc.data<T>()[h * C + c]) + square(mlp.project.data<T>()[c * H + h]);
      norms[index(h)] = std::sqrt(sum);
    }
  });
  return norms;
}

std::vector<std::int64_t> largest_neurons(const std::vector<double>& norms, std::int64_t count) {
  if (count < 1 || count > std::ssize(norms))
    fail(fmt::format("{} neurons of {}: expected 1 to all of them", count, norms.size()));
  std::vector<std::int64_t> neurons(norms.size());
  std::iota(neurons.begin(), neurons.end(), 0);
  std::stable_sort(neurons.begin(), neurons.end(), [&](std::int64_t a, std::int64_t b) {
    return norms[index(a)] > norms[index(b)];
  });
  neurons.resize(index(count));
  std::sort(neurons.begin(), neurons.end());
  return neurons;
}

MlpWeights with_neurons(const MlpWeights& mlp, const std::vector<std::int64_t>& neurons) {
  check_mlp(mlp);
  const std::int64_t H = mlp.fc.shape()[0], C = mlp.fc.shape()[1], left = std::ssize(neurons);
  check_neurons(neurons, H);
  const DType dtype = mlp.fc.dtype();
  Device& device = mlp.fc.device();
  MlpWeights smaller{Tensor({left, C}, dtype, device, Purpose::Parameters),
                     Tensor({left}, dtype, device, Purpose::Parameters),
                     Tensor({C, left}, dtype, device, Purpose::Parameters)};
  dispatch(dtype, [&](auto type) {
    using T = decltype(type);
    for (std::int64_t i = 0; i < left; ++i) {
      const std::int64_t h = neurons[index(i)];
      std::copy_n(mlp.fc.data<T>() + h * C, C, smaller.fc.data<T>() + i * C);
      smaller.fc_bias.data<T>()[i] = mlp.fc_bias.data<T>()[h];
      for (std::int64_t c = 0; c < C; ++c)
        smaller.project.data<T>()[c * left + i] = mlp.project.data<T>()[c * H + h];
    }
  });
  return smaller;
}

void mask_other_neurons(const MlpWeights& mlp, const std::vector<std::int64_t>& neurons) {
  check_mlp(mlp);
  const std::int64_t H = mlp.fc.shape()[0], C = mlp.fc.shape()[1];
  check_neurons(neurons, H);
  std::vector<bool> stays(index(H));
  for (const std::int64_t h : neurons) stays[index(h)] = true;
  dispatch(mlp.fc.dtype(), [&](auto type) {
    using T = decltype(type);
    for (std::int64_t h = 0; h < H; ++h) {
      if (stays[index(h)]) continue;
      std::fill_n(mlp.fc.data<T>() + h * C, C, T(0.f));
      mlp.fc_bias.data<T>()[h] = T(0.f);
      for (std::int64_t c = 0; c < C; ++c) mlp.project.data<T>()[c * H + h] = T(0.f);
    }
  });
}

}  // namespace aisc
