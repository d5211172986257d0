#include "common/nn/driver.h"

#include <utility>
#include <vector>

namespace aisc {

double forward_backward(Gpt& model, const Tensor& tokens, const Tensor& targets, const Pass& pass,
                        double loss_factor) {
  const auto layers = model.layers();
  std::vector<Saved> saved(layers.size() + 1);  // one a layer, the last for the loss
  Tensor x = tokens.share();
  for (std::size_t i = 0; i < layers.size(); ++i)
    x = layers[i]->forward(std::move(x), saved[i], pass);
  const double loss = model.loss().forward(std::move(x), targets, saved.back());

  Tensor dx = model.loss().backward(saved.back(), loss_factor);
  for (std::size_t i = layers.size(); i-- > 0;)
    dx = layers[i]->backward(std::move(dx), saved[i], pass);
  return loss;
}

Tensor forward(const Gpt& model, const Tensor& tokens) {
  Tensor x = tokens.share();
  Saved nothing = Saved::nothing();
  for (const auto& layer : model.layers())
    x = layer->forward(std::move(x), nothing, {.training = false});
  return x;
}

double evaluate(const Gpt& model, const Tensor& tokens, const Tensor& targets) {
  Saved nothing = Saved::nothing();
  return model.loss().forward(forward(model, tokens), targets, nothing);
}

}  // namespace aisc
