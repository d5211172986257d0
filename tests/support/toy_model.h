// A model whose layers do nothing but take time and write gradients that everybody can compute.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/launch.h"
#include "common/nn/model.h"
#include "common/nn/parameter_store.h"
#include "tests/support/tensors.h"

namespace aisc::toy {

// What one layer is.
struct Size {
  std::int64_t count;          // of its parameter's elements
  double backward = 0;         // seconds, of virtual time
  bool unused = false;         // it never writes its gradient
  bool borrows_first = false;  // adds to the first layer's gradient, too: a tied head
};

// What layer `layer` of `rank` adds to its gradient in a micro-batch, every element.
inline double gradient(int rank, std::size_t layer, int micro_batch) {
  return static_cast<double>((rank + 1) * 100 + 10 * static_cast<int>(layer) + micro_batch + 1);
}

class ToyLayer final : public Layer {
 public:
  ToyLayer(const Rank& rank, std::size_t index, const Size& size, Parameter* first)
      : Layer(rank, "layer" + std::to_string(index)),
        index_(index),
        size_(size),
        first_(first),
        weight_(whole_parameter(name_ + ".weight", {size.count}, Init::constant(0), true)) {}

  Tensor forward(Tensor x, Saved& saved, const Pass& /*pass*/) const override {
    saved.push(x.share());
    return x;
  }
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override {
    const auto span = rank_.trace.span("backward", name_);
    saved.pop();
    if (rank_.clock.is_virtual()) rank_.clock.advance(size_.backward);
    const double factor = dy.values<double>()[0];
    if (!size_.unused) add(weight_, pass, factor);
    if (size_.borrows_first) add(*first_, pass, factor);
    return dy;
  }
  std::vector<Parameter*> parameters() override { return {&weight_}; }
  std::vector<Parameter*> borrows() override {
    if (!size_.borrows_first) return {};
    return {first_};
  }

 private:
  void add(Parameter& p, const Pass& pass, double factor) const {
    const bool adds = p.next_grad() == ops::Into::Accumulate;
    const double own = factor * gradient(rank_.world.rank(), index_, pass.micro_batch);
    for (double& g : p.grad().values<double>()) g = (adds ? g : 0) + own;
  }

  const std::size_t index_;
  const Size size_;
  Parameter* const first_;
  Parameter weight_;
};

// One nat a sample; its gradient is the factor.
class ToyLoss final : public Loss {
 public:
  double forward(Tensor x, const Tensor& /*targets*/, Saved& saved,
                 const Pass& /*pass*/) const override {
    const auto samples = static_cast<double>(x.shape()[0]);
    saved.push(std::move(x));
    return samples;
  }
  Tensor backward(Saved& saved, double factor) const override {
    Tensor dy = saved.pop();
    ops::fill(dy, factor);
    return dy;
  }
};

// A rank's model, its parameters in F64, and what fills its gradients.
struct Toy {
  Toy(const Rank& own, const std::vector<Size>& layers, ParameterStore::Options options = {})
      : rank(own), sizes(layers) {
    Parameter* first = nullptr;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      model.layers.push_back(std::make_unique<ToyLayer>(rank, i, sizes[i], first));
      if (i == 0) first = model.layers[0]->parameters()[0];
    }
    model.loss = std::make_unique<ToyLoss>();
    options.value_dtype = options.grad_dtype = DType::F64;
    store = std::make_unique<ParameterStore>(rank.device, make_units(model), options);
  }

  // As backward of all micro-batches does, without hooks: layers from the last to `down_to`.
  void write_gradients(int micro_batches = 1, std::size_t down_to = 0) {
    for (int m = 0; m < micro_batches; ++m)
      for (std::size_t i = sizes.size(); i-- > down_to;) backward(i, m);
  }
  void backward(std::size_t layer, int micro_batch = 0) {
    Saved saved;
    saved.push(Tensor({1}, DType::F64, rank.device));
    model.layers[layer]->backward(from_doubles({1}, {1}, DType::F64, rank.device), saved,
                                  {.micro_batch = micro_batch});
  }

  // The sums over `ranks` and `micro_batches`, of the whole flat buffer; padding is 0.
  std::vector<double> sums(int ranks, int micro_batches = 1) const {
    std::vector<double> all(static_cast<std::size_t>(store->layout().count()));
    for (std::size_t i = 0; i < sizes.size(); ++i)
      for (int r = 0; r < ranks; ++r)
        for (int m = 0; m < micro_batches; ++m) {
          if (!sizes[i].unused) add_to(all, i, gradient(r, i, m));
          if (sizes[i].borrows_first) add_to(all, 0, gradient(r, i, m));
        }
    return all;
  }
  // Of the elements of parameters; what pads them is left out.
  std::vector<double> without_padding(const std::vector<double>& flat) const {
    std::vector<double> numbers;
    for (const FlatUnit& unit : store->layout().units())
      for (const Range& p : unit.parameters)
        numbers.insert(numbers.end(), flat.begin() + p.begin, flat.begin() + p.end);
    return numbers;
  }

  Rank rank;
  std::vector<Size> sizes;
  Model model;
  std::unique_ptr<ParameterStore> store;

 private:
  void add_to(std::vector<double>& all, std::size_t layer, double value) const {
    const Range& range = store->layout().units()[layer].parameters[0];
    for (std::int64_t j = range.begin; j < range.end; ++j)
      all[static_cast<std::size_t>(j)] += value;
  }
};

}  // namespace aisc::toy
