#include "10_model_compression/more/f8_training.h"

#include <fmt/format.h>

#include <utility>

#include "10_model_compression/more/f8_linear.h"
#include "common/core/error.h"
#include "common/nn/sequence.h"

namespace aisc {

F8Scale parse_f8_scale(std::string_view text) {
  if (text == "tensor") return F8Scale::Tensor;
  if (text == "delayed") return F8Scale::Delayed;
  if (text == "block") return F8Scale::Block;
  fail(fmt::format("f8: scale '{}': expected tensor, delayed or block", text));
}

F8Layers parse_f8_layers(std::string_view text) {
  F8Layers layers{.linears = false};
  for (std::size_t begin = 0, end = 0; end != text.npos; begin = end + 1) {
    end = text.find(',', begin);
    const std::string_view word = text.substr(begin, end == text.npos ? end : end - begin);
    if (word == "linears")
      layers.linears = true;
    else if (word == "head")
      layers.head = true;
    else if (word == "norms")
      layers.norms = true;
    else if (word == "router")
      layers.router = true;
    else
      fail(
          fmt::format("f8: layers '{}': found '{}', expected some of linears, head, norms and "
                      "router, with commas between them",
                      text, word));
  }
  return layers;
}

// A parameter that is bound to other values, until this ends.
class F8Layer::Bound {
 public:
  explicit Bound(Parameter& parameter)
      : parameter_(parameter),
        own_(parameter.value()),
        other_(own_.shape(), own_.dtype(), own_.device(), Purpose::Workspace) {}
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;
  ~Bound() { parameter_.bind_value(own_); }

  void bind() { parameter_.bind_value(other_); }
  const View& own() const { return own_; }
  View other() const { return other_; }

 private:
  Parameter& parameter_;
  const View own_;
  const Tensor other_;
};

F8Layer::F8Layer(const Rank& rank, std::unique_ptr<Layer> inner, const F8Options& options,
                 Operands operands)
    : Layer(rank, inner->name()),
      inner_(std::move(inner)),
      options_(options),
      operands_(std::move(operands)),
      x_{options.values, kRowBlocks, LargestOfSteps(options.history)},
      dy_{options.gradients, kRowBlocks, LargestOfSteps(options.history)} {
  for (Parameter* p : joined(inner_->parameters(), inner_->borrows()))
    if (operands_.weights(*p))
      weights_.push_back({p, {options.values, kSquareBlocks, LargestOfSteps(options.history)}});
}

// A forward that is repeated finds the same: what this step has seen does not count for it.
float F8Kind::delayed_scale(ConstView x, std::uint64_t step) const {
  const float known = seen.before(step), found = largest_magnitude(x);
  seen.record(step, found);
  return f8_scale(format, known > 0 ? known : found);
}

void F8Layer::round(View out, ConstView x, const F8Kind& kind, const Pass& pass) const {
  if (options_.scale == F8Scale::Block) return round_to_f8(out, x, kind.format, kind.blocks);
  if (options_.scale == F8Scale::Tensor || !pass.training)
    return round_to_f8(out, x, kind.format, kWholeTensor);
  round_to_f8(out, x, kind.format, kind.delayed_scale(x, pass.step));
}

// Others may hold x, too: the trunk that goes past a block, or what the layer before has kept.
Tensor F8Layer::rounded(Tensor x, const F8Kind& kind, const Pass& pass) const {
  const auto span = rank_.trace.span("rounding", name_);
  Tensor out = output_like(x);
  round(out, x, kind, pass);
  return out;
}

std::vector<std::unique_ptr<F8Layer::Bound>> F8Layer::bind_rounded(const Pass& pass) const {
  const auto span = rank_.trace.span("rounding", name_);
  std::vector<std::unique_ptr<Bound>> all;
  for (const Weight& weight : weights_) {
    Bound& bound = *all.emplace_back(std::make_unique<Bound>(*weight.parameter));
    const Shape& shape = bound.own().shape();
    if (shape.rank() == 3 && options_.scale == F8Scale::Block) {
      const Shape one{shape[1], shape[2]};  // blocks lie in one expert's matrix
      for (std::int64_t e = 0; e < shape[0]; ++e)
        round(bound.other().rows(e, e + 1).reshaped(one), bound.own().rows(e, e + 1).reshaped(one),
              weight.kind, pass);
    } else {
      round(bound.other(), bound.own(), weight.kind, pass);
    }
    bound.bind();
  }
  return all;
}

Tensor F8Layer::forward(Tensor x, Saved& saved, const Pass& pass) const {
  const auto weights = bind_rounded(pass);
  if (operands_.x) x = rounded(std::move(x), x_, pass);
  return inner_->forward(std::move(x), saved, pass);
}

// Products of weight gradients that wait (Pass::deferred) hold dy' and x', and need no weights.
Tensor F8Layer::backward(Tensor dy, Saved& saved, const Pass& pass) {
  const auto weights = bind_rounded(pass);
  if (operands_.dy) dy = rounded(std::move(dy), dy_, pass);
  return inner_->backward(std::move(dy), saved, pass);
}

namespace {

using Wanted = GptParts::Wanted;

bool is_f8_matrix(const Parameter& p) { return p.shape.rank() >= 2; }
bool is_any_parameter(const Parameter&) { return true; }

// The layers of module 08, by the names of their weights: in one layer with what it must not touch.
F8Layer::Operands of_experts(const F8Layers& layers) {
  return {.x = layers.linears || layers.router,
          .dy = layers.linears,
          .weights = [layers](const Parameter& p) {
            const bool router = p.name.find(".router.weight") != std::string::npos;
            const bool expert = p.name.find(".experts.") != std::string::npos && is_f8_matrix(p) &&
                                p.name.ends_with(".weight");
            return (layers.router && router) || (layers.linears && expert);
          }};
}

}  // namespace

GptParts f8_parts(GptParts parts, const F8Options& options) {
  const auto around = [options](const Wanted& w, std::unique_ptr<Layer> inner,
                                F8Layer::Operands operands) {
    return std::make_unique<F8Layer>(w.rank, std::move(inner), options, std::move(operands));
  };
  const F8Layers& layers = options.layers;
  if (layers.linears)
    for (auto* linear : {&parts.column, &parts.row})
      *linear = [around, options, inner = *linear](
                    const Wanted& w, const GptParts::LinearSizes& z) -> std::unique_ptr<Layer> {
        std::unique_ptr<Layer> made = inner(w, z);
        if (F8Linear::replaces(w.rank, *made, options))
          return std::make_unique<F8Linear>(w.rank, std::move(made), z.gelu, options);
        return around(w, std::move(made), {.weights = is_f8_matrix});
      };
  if (layers.norms)
    parts.norm = [around, inner = parts.norm](const Wanted& w) {
      return around(w, inner(w), {.weights = is_any_parameter});
    };
  if (layers.head)
    parts.head = [around, inner = parts.head](const Wanted& w, Parameter* shared) {
      return around(w, inner(w, shared), {.weights = is_f8_matrix});
    };
  if (layers.linears || layers.router)
    parts.mlp = [around, layers, inner = parts.mlp](const Wanted& w) {
      std::unique_ptr<Layer> mlp = inner(w);
      if (!w.config.has_experts(w.block)) return mlp;
      return std::unique_ptr<Layer>(around(w, std::move(mlp), of_experts(layers)));
    };
  return parts;
}

StepParts f8_training(const F8Options& options, StepParts parts) {
  parts.layers.push_back(
      [options](GptParts of_model) { return f8_parts(std::move(of_model), options); });
  return parts;
}

}  // namespace aisc
