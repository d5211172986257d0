#include "common/nn/driver.h"

#include <fmt/format.h>

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

// x (B, T) or (B, T, C): the tokens behind those in the cache.
enum class Ends { No, Head };  // whether the last layer is the head, which sees one position alone
Tensor cached_layers(const Model& model, const LayerRange& layers, Tensor x, KeyValueCache& cache,
                     Hooks hooks, Ends ends) {
  const std::int64_t T = x.shape()[1], first = cache.length();
  if (T < 1) fail("forward_cached: there are no tokens, expected 1 or more");
  if (first + T > cache.capacity())
    fail(fmt::format("forward_cached: {} tokens after {} are {}, the cache has room for {}", T,
                     first, first + T, cache.capacity()));
  const Pass pass{.training = false, .tokens = {.first = first}, .cache = &cache};
  Saved nothing = Saved::nothing();
  for (std::size_t i = layers.begin; i < layers.end; ++i) {
    if (ends == Ends::Head && i + 1 == layers.end) x = last_position(std::move(x));
    x = forward_layer(model, i, std::move(x), nothing, pass, hooks);
  }
  if (ends == Ends::No) return x;
  const Shape logits{x.shape()[0], x.shape()[2]};
  return std::move(x).reshaped(logits);
}

}  // namespace

Tensor forward_layer(const Model& model, std::size_t layer, Tensor x, Saved& saved,
                     const Pass& pass, Hooks hooks) {
  for (LayerHook* hook : hooks) hook->before_forward(layer, pass);
  x = model.layers[layer]->forward(std::move(x), saved, pass);
  for (auto hook = hooks.rbegin(); hook != hooks.rend(); ++hook)
    (*hook)->after_forward(layer, pass, saved);
  return x;
}

Tensor backward_layer(const Model& model, std::size_t layer, Tensor dy, Saved& saved,
                      const Pass& pass, Hooks hooks) {
  for (LayerHook* hook : hooks) hook->before_backward(layer, pass, saved);
  dy = model.layers[layer]->backward(std::move(dy), saved, pass);
  for (auto hook = hooks.rbegin(); hook != hooks.rend(); ++hook)
    (*hook)->after_backward(layer, pass);
  return dy;
}

void complete_layer(std::size_t layer, Hooks hooks) {
  for (LayerHook* hook : hooks) hook->complete(layer);
}

Tensor forward_layers(const Model& model, const LayerRange& layers, Tensor x,
                      std::span<Saved> saved, const Pass& pass, Hooks hooks) {
  for (std::size_t i = layers.begin; i < layers.end; ++i)
    x = forward_layer(model, i, std::move(x), saved[i - layers.begin], pass, hooks);
  return x;
}

Tensor backward_layers(const Model& model, const LayerRange& layers, Tensor dy,
                       std::span<Saved> saved, const Pass& pass, Hooks hooks) {
  for (std::size_t i = layers.end; i-- > layers.begin;) {
    dy = backward_layer(model, i, std::move(dy), saved[i - layers.begin], pass, hooks);
    if (hooks.empty() || !pass.last_micro_batch) continue;
    // Deferred gradients run behind this call, and maybe behind what `hooks` looks at.
    if (pass.deferred)
      pass.deferred->push(
          [i, all = std::vector(hooks.begin(), hooks.end())] { complete_layer(i, all); });
    else
      complete_layer(i, hooks);
  }
  return dy;
}

double forward_backward(const Model& model, const Tensor& tokens, const Tensor& targets,
                        const Pass& pass, double loss_factor, Hooks hooks) {
  std::vector<Saved> saved(model.layers.size() + 1);  // one a layer, the last for the loss
  Tensor x = forward_layers(model, tokens.share(), saved, pass, hooks);
  const double loss = model.loss->forward(std::move(x), targets, saved.back(), pass);
  backward_layers(model, model.loss->backward(saved.back(), loss_factor), saved, pass, hooks);
  return loss;
}

Tensor forward(const Model& model, const Tensor& tokens, Hooks hooks, const Pass& pass) {
  std::vector<Saved> nothing;
  for (std::size_t i = 0; i < model.layers.size(); ++i) nothing.push_back(Saved::nothing());
  return forward_layers(model, tokens.share(), nothing, pass, hooks);
}

Tensor forward_cached(const Model& model, const LayerRange& layers, Tensor x, KeyValueCache& cache,
                      Hooks hooks) {
  const bool has_head = model.loss && layers.end == model.layers.size();
  return cached_layers(model, layers, std::move(x), cache, hooks, has_head ? Ends::Head : Ends::No);
}

Tensor forward_cached(const Model& model, const Tensor& tokens, KeyValueCache& cache, Hooks hooks) {
  Tensor logits =
      cached_layers(model, model.all_layers(), tokens.share(), cache, hooks, Ends::Head);
  cache.advance(tokens.shape()[-1]);
  return logits;
}

double evaluate(const Model& model, const Tensor& tokens, const Tensor& targets, Hooks hooks,
                const Pass& pass) {
  Saved nothing = Saved::nothing();
  return model.loss->forward(forward(model, tokens, hooks, pass), targets, nothing, pass);
}

}  // namespace aisc
