#include "08_moe/more/upcycle.h"

#include <fmt/format.h>

#include <map>
#include <string>

#include "common/core/error.h"

namespace aisc {
namespace {

bool has_part(const std::string& name, const char* part) {
  return name.find(part) != std::string::npos;
}

// Shape of one of the first dimension.
Shape without_first(const Shape& all) {
  return all.rank() == 3 ? Shape{all[1], all[2]} : Shape{all[1]};
}

}  // namespace

std::optional<Parameter> dense_parameter(const Parameter& p) {
  if (has_part(p.name, ".mlp.router.")) return std::nullopt;
  if (has_part(p.name, ".mlp.shared."))
    fail(
        fmt::format("{}: a dense model's MLP would count twice: expected no expert that all tokens "
                    "pass",
                    p.name));
  const std::string experts = ".mlp.experts.", mlp = ".mlp.";
  std::string name = p.name;
  const std::size_t at = name.find(experts);
  if (at == std::string::npos) return whole_parameter(name, p.global_shape, p.init, p.decay);
  return whole_parameter(name.replace(at, experts.size(), mlp), without_first(p.global_shape),
                         p.init, p.decay);
}

bool upcycle(const Parameter& p, View whole, const ReadDense& read_dense) {
  const std::optional<Parameter> dense = dense_parameter(p);
  if (!dense) return false;
  const View first = whole.flat(0, dense->shape.count()).reshaped(dense->shape);
  read_dense(*dense, first);
  for (std::int64_t from = first.count(); from < whole.count(); from += first.count())
    whole.device().copy(whole.flat(from, first.count()).reshaped(dense->shape), first);
  return true;
}

void upcycle_model(const Model& sparse, const Model& dense) {
  std::map<std::string, const Parameter*> by_name;
  for (const auto& layer : dense.layers)
    for (const Parameter* p : layer->parameters()) by_name[p->name] = p;
  for (const auto& layer : sparse.layers)
    for (const Parameter* p : layer->parameters())
      upcycle(*p, p->value(), [&](const Parameter& wanted, const View& to) {
        const auto found = by_name.find(wanted.name);
        if (found == by_name.end())
          fail(fmt::format("upcycle: the dense model has no {}", wanted.name));
        const View& from = found->second->value();
        if (!(from.shape() == wanted.shape))
          fail(fmt::format("upcycle: {} has shape {}, expected {}", wanted.name,
                           from.shape().to_string(), wanted.shape.to_string()));
        to.device().copy(to, from);
      });
}

}  // namespace aisc
