#include "common/nn/driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/core/error.h"

namespace aisc {
namespace {

// x (B, T, C) at its last position: (B, 1, C).
Tensor last_position(Tensor x) {
  const std::int64_t B = x.shape()[0], T = x.shape()[1], C = x.shape()[2];
  if (T == 1) return x;
  Tensor last({B, 1, C}, x.dtype(), x.device());
  for (std::int64_t b = 0; b < B; ++b)
    x.device().copy(last.view().flat(b * C, C), x.view().flat((b * T + T - 1) * C, C));
  return last;
}

}  // namespace

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

Tensor forward_cached(const Gpt& model, const Tensor& tokens, KeyValueCache& cache) {
  const std::int64_t T = tokens.shape()[-1], first = cache.length();
  const std::int64_t room = std::min(model.config().context, cache.capacity());
  if (T < 1) fail("forward_cached: there are no tokens, expected 1 or more");
  if (first + T > room)
    fail(fmt::format("forward_cached: {} tokens after {} are {}, the context has room for {}", T,
                     first, first + T, room));
  const Pass pass{.training = false, .first_token = first, .cache = &cache};
  Saved nothing = Saved::nothing();
  const auto layers = model.layers();
  const auto& head = layers.back();
  Tensor x = tokens.share();
  for (const auto& layer : layers.first(layers.size() - 1))
    x = layer->forward(std::move(x), nothing, pass);
  x = head->forward(last_position(std::move(x)), nothing, pass);  // (B, 1, V)
  cache.advance(T);
  const Shape logits{x.shape()[0], x.shape()[2]};
  return std::move(x).reshaped(logits);
}

double evaluate(const Gpt& model, const Tensor& tokens, const Tensor& targets) {
  Saved nothing = Saved::nothing();
  return model.loss().forward(forward(model, tokens), targets, nothing);
}

}  // namespace aisc
