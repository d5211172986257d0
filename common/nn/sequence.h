// Layers made of layers: one after another, and run again in place of remembering.
#pragma once

#include <memory>

#include "common/nn/layer.h"

namespace aisc {

template <class T>
std::vector<T> joined(std::vector<T> all, const std::vector<T>& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

class Sequence final : public Layer {
 public:
  Sequence(const Rank& rank, std::string name, std::vector<std::unique_ptr<Layer>> layers)
      : Layer(rank, std::move(name)), layers_(std::move(layers)) {}

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override { return all(&Layer::parameters); }
  std::vector<Parameter*> borrows() override { return all(&Layer::borrows); }
  std::vector<Unit> units() override { return all(&Layer::units); }  // those of its layers

 private:
  template <class T>
  std::vector<T> all(std::vector<T> (Layer::*part)()) const {
    std::vector<T> found;
    for (const auto& layer : layers_) found = joined(std::move(found), (layer.get()->*part)());
    return found;
  }

  std::vector<std::unique_ptr<Layer>> layers_;
};

// Layers in a list, which in braces would be copied.
template <class... Layers>
std::vector<std::unique_ptr<Layer>> listed(std::unique_ptr<Layers>... layers) {
  std::vector<std::unique_ptr<Layer>> all;
  (all.push_back(std::move(layers)), ...);
  return all;
}
template <class... Layers>
std::unique_ptr<Layer> in_sequence(const Rank& rank, const std::string& name,
                                   std::unique_ptr<Layers>... layers) {
  return std::make_unique<Sequence>(rank, name, listed(std::move(layers)...));
}

// Memory for time: keeps its input alone and runs forward again when backward comes (Chen et al.,
// "Training deep nets with sublinear memory cost", 2016): around a block, around several in
// sequence, or around the core of attention (Korthikanti et al., "Reducing activation recomputation
// in large transformer models", 2022, section 5). Dropout draws by position and not in the order of
// calls, so that the second forward drops the same elements and all gradients have the same bits.
class Recomputed final : public Layer {
 public:
  Recomputed(const Rank& rank, std::unique_ptr<Layer> inner)
      : Layer(rank, inner->name()), inner_(std::move(inner)) {}

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override { return inner_->parameters(); }
  std::vector<Parameter*> borrows() override { return inner_->borrows(); }
  std::vector<Unit> units() override { return inner_->units(); }

 private:
  std::unique_ptr<Layer> inner_;
};

}  // namespace aisc
