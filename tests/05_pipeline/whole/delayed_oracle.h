// A small network whose stages can be cut anywhere, and its training by hand, in plain loops, where
// each stage may compute with weights of another version.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/nn/linear.h"
#include "common/nn/model.h"
#include "tests/support/reference.h"
#include "tests/support/tensors.h"

namespace aisc::delayed {

using reference::Array;

// Linear layers kWidths[l] -> kWidths[l + 1], with a GELU after each but the last.
inline constexpr std::int64_t kWidths[] = {3, 5, 4, 6, 2, 3};
inline constexpr std::size_t kLinears = 5;
inline constexpr std::int64_t kSamples = 2;  // of a micro-batch
inline constexpr std::uint64_t kSeed = 11;
inline constexpr double kSpread = 0.7;  // of the first weights
inline constexpr double kRate = 0.05;   // of learning

// The linear layers of stage `stage` of `stages`: 5 layers over 2 stages are 2 and 3.
inline LayerRange linears_of(int stage, int stages) {
  const std::size_t s = index(stage), p = index(stages);
  return {s * kLinears / p, (s + 1) * kLinears / p};
}
inline std::string name_of_linear(std::size_t l) { return fmt::format("linear{}", l); }

class Gelu final : public Layer {
 public:
  using Layer::Layer;
  Tensor forward(Tensor x, Saved& saved, const Pass& /*pass*/) const override {
    Tensor y(x.shape(), x.dtype(), x.device());
    ops::gelu(y, x);
    saved.push(std::move(x));
    return y;
  }
  Tensor backward(Tensor dy, Saved& saved, const Pass& /*pass*/) override {
    const Tensor x = saved.pop();
    Tensor dx(x.shape(), x.dtype(), x.device());
    ops::gelu_backward(dx, dy, x);
    return dx;
  }
};

// Half of the sum of the squares of the differences from the targets, which are floating numbers.
class Squares final : public Loss {
 public:
  double forward(Tensor x, const Tensor& targets, Saved& saved,
                 const Pass& /*pass*/) const override {
    Tensor off(x.shape(), x.dtype(), x.device());
    double loss = 0;
    for (std::size_t i = 0; i < off.values<double>().size(); ++i) {
      off.values<double>()[i] = x.values<double>()[i] - targets.values<double>()[i];
      loss += off.values<double>()[i] * off.values<double>()[i] / 2;
    }
    saved.push(std::move(off));
    return loss;
  }
  Tensor backward(Saved& saved, double factor) const override {
    const Tensor off = saved.pop();
    Tensor dx(off.shape(), off.dtype(), off.device());
    for (std::size_t i = 0; i < dx.values<double>().size(); ++i)
      dx.values<double>()[i] = factor * off.values<double>()[i];
    return dx;
  }
};

inline Model make_stage(const Rank& rank, int stage, int stages) {
  Model model;
  const LayerRange linears = linears_of(stage, stages);
  for (std::size_t l = linears.begin; l < linears.end; ++l) {
    model.layers.push_back(
        std::make_unique<Linear>(rank, name_of_linear(l), kWidths[l], kWidths[l + 1], kSpread));
    if (l + 1 < kLinears)
      model.layers.push_back(std::make_unique<Gelu>(rank, fmt::format("gelu{}", l)));
  }
  if (stage + 1 == stages) model.loss = std::make_unique<Squares>();
  model.stages = {model.all_layers()};
  return model;
}

// What goes into the network in micro-batch k of the whole training, and what should come out.
inline Tensor input(int k, Device& device) {
  return random_tensor({kSamples, kWidths[0]}, DType::F64, device, fmt::format("input {}", k));
}
inline Tensor target(int k, Device& device) {
  return random_tensor({kSamples, kWidths[kLinears]}, DType::F64, device,
                       fmt::format("target {}", k));
}

// ---- the oracle ---------------------------------------------------------------------------------

// Weights of the whole network, or their gradients.
struct Weights {
  std::vector<Array> matrices, biases;  // by linear layer: (out, in), (out)
};

inline Weights first_weights() {
  CpuDevice device;
  Weights first;
  for (std::size_t l = 0; l < kLinears; ++l) {
    const Parameter weight = whole_parameter(
        name_of_linear(l) + ".weight", {kWidths[l + 1], kWidths[l]}, Init::normal(kSpread), true);
    const Tensor values({weight.shape.count()}, DType::F64, device);
    draw(values, weight, 0, kSeed);
    first.matrices.emplace_back(weight.shape);
    first.matrices.back().values = to_doubles(values);
    first.biases.emplace_back(Shape{kWidths[l + 1]});
  }
  return first;
}

// op(a) op(b), of matrices.
inline Array product(const Array& a, const Array& b, ops::Transpose transpose) {
  const auto reshaped = [](const Array& x, const Shape& shape) {
    Array same(shape);
    same.values = x.values;
    return same;
  };
  const auto batch = [&](const Array& x) { return reshaped(x, {1, x.extent(0), x.extent(1)}); };
  const Array all = reference::matmul(batch(a), batch(b), transpose);
  return reshaped(all, {all.extent(1), all.extent(2)});
}

struct Gradient {
  double loss = 0;
  Weights of;
};

// Of micro-batch k: forward with some weights, and back with the same ones, or with others.
inline Gradient gradient(int k, const Weights& forward, const Weights& backward) {
  CpuDevice device;
  std::vector<Array> inputs, products;
  Array x = to_array(input(k, device));
  for (std::size_t l = 0; l < kLinears; ++l) {
    inputs.push_back(x);
    products.push_back(reference::add_bias(product(x, forward.matrices[l], ops::Transpose::Second),
                                           forward.biases[l]));  // (N, O)
    x = l + 1 < kLinears ? reference::gelu(products[l]) : products[l];
  }
  Gradient g{.of = forward};
  Array dy = reference::add(x, reference::scale(to_array(target(k, device)), -1));
  for (const double off : dy.values) g.loss += off * off / 2;
  for (std::size_t l = kLinears; l-- > 0;) {
    if (l + 1 < kLinears) dy = reference::gelu_backward(dy, products[l]);
    g.of.matrices[l] = product(dy, inputs[l], ops::Transpose::First);  // (O, I)
    g.of.biases[l] = reference::add_bias_backward(dy);
    dy = product(dy, backward.matrices[l], ops::Transpose::None);  // (N, I)
  }
  return g;
}
inline Gradient gradient(int k, const Weights& weights) { return gradient(k, weights, weights); }

// a + factor * b
inline Weights sum(const Weights& a, double factor, const Weights& b) {
  Weights all;
  for (std::size_t l = 0; l < kLinears; ++l) {
    all.matrices.push_back(reference::add(a.matrices[l], reference::scale(b.matrices[l], factor)));
    all.biases.push_back(reference::add(a.biases[l], reference::scale(b.biases[l], factor)));
  }
  return all;
}

// A training: update u makes versions[u + 1] of versions[u] with gradients[u].
struct History {
  std::vector<Weights> versions{first_weights()};
  std::vector<Weights> gradients;
  std::vector<double> losses;  // one a micro-batch

  void update(Weights gradient) {
    versions.push_back(sum(versions.back(), -kRate, gradient));
    gradients.push_back(std::move(gradient));
  }
  // Each of `stages` stages has another version.
  Weights mixed(int stages, const std::function<int(int stage)>& version) const {
    Weights all = versions[0];
    for (int s = 0; s < stages; ++s) {
      const LayerRange linears = linears_of(s, stages);
      const Weights& of = versions.at(static_cast<std::size_t>(version(s)));
      for (std::size_t l = linears.begin; l < linears.end; ++l) {
        all.matrices[l] = of.matrices[l];
        all.biases[l] = of.biases[l];
      }
    }
    return all;
  }
};

// How far the two trainings' last weights are apart: the largest difference of an element.
inline double distance(const History& a, const History& b) {
  double most = 0;
  const Weights off = sum(a.versions.back(), -1, b.versions.back());
  for (const auto* arrays : {&off.matrices, &off.biases})
    for (const Array& array : *arrays)
      for (const double x : array.values) most = std::max(most, std::abs(x));
  return most;
}

}  // namespace aisc::delayed
