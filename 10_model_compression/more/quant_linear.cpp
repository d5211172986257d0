// A linear layer over codes, and models that have them.
#include "10_model_compression/more/quant_linear.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "10_model_compression/more/quant_product.h"
#include "common/core/error.h"

namespace aisc {

QuantLinear::QuantLinear(const Rank& rank, const std::string& name, Codes weight, Linear::Gelu gelu)
    : Layer(rank, name),
      weight_(std::move(weight)),
      gelu_(gelu),
      bias_(whole_parameter(name + ".bias", {weight_.shape[0]}, Init::constant(0), false)) {
  const Device& codes = weight_.codes.device();
  if (&codes != &rank.device)
    fail(fmt::format("{}: the codes of its weight are on another device ({}) than the rank's ({})",
                     name, codes.name(), rank.device.name()));
}

namespace {

Tensor in_type(Tensor x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Tensor cast(x.shape(), dtype, x.device());
  ops::cast(cast, x);
  return cast;
}

}  // namespace

Tensor QuantLinear::forward(Tensor x, Saved& /*saved*/, const Pass& /*pass*/) const {
  const auto span = rank_.trace.span("product", name_ + ".weight");
  const DType dtype = x.dtype();
  const Shape shape = x.shape().with(-1, weight_.shape[0]);
  const Tensor wide = in_type(std::move(x), DType::F32);  // (..., I)
  const View bias = bias_.value();                        // (O)
  Tensor own_bias;
  if (dtype != DType::F32) {
    own_bias = Tensor(bias.shape(), DType::F32, bias.device());
    ops::cast(own_bias, bias);
  }
  Tensor y(shape, DType::F32, wide.device());  // (..., O)
  quant_product(as_rows(y), as_rows(wide), weight_, own_bias ? own_bias.view() : bias);
  if (gelu_ == Linear::Gelu::Behind) ops::gelu(y, y);
  return in_type(std::move(y), dtype);
}

Tensor QuantLinear::backward(Tensor /*dy*/, Saved& /*saved*/, const Pass& /*pass*/) {
  fail(fmt::format("{}: its weight is codes, which have no gradient: expected forward alone",
                   name_));
}

std::vector<std::string> linear_weights(const GptConfig& config) {
  std::vector<std::string> names;
  for (std::int64_t block = 0; block < config.layers; ++block)
    for (const char* layer : {"attention.qkv", "attention.project", "mlp.fc", "mlp.project"})
      names.push_back(fmt::format("blocks.{}.{}.weight", block, layer));
  return names;
}

GptParts quantized_linears(GptParts parts, CodesByName codes) {
  const auto all = std::make_shared<const CodesByName>(std::move(codes));
  for (auto* make : {&parts.column, &parts.row})
    *make = [of = std::move(*make), all](
                const GptParts::Wanted& w,
                const GptParts::LinearSizes& sizes) -> std::unique_ptr<Layer> {
      const auto its = all->find(w.name + ".weight");
      if (its == all->end()) return of(w, sizes);
      const Shape shape{sizes.out, sizes.in};
      if (its->second.shape != shape)
        fail(fmt::format("{}: the codes are of a weight {}, the model has {}", its->first,
                         its->second.shape.to_string(), shape.to_string()));
      return std::make_unique<QuantLinear>(w.rank, w.name, its->second.share(), sizes.gelu);
    };
  return parts;
}

}  // namespace aisc
