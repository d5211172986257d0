#include "common/nn/parameter_store.h"

#include <fmt/format.h>

#include <utility>

#include "common/core/error.h"

namespace aisc {

ParameterStore::ParameterStore(Device& device, std::vector<Unit> units, const Options& options)
    : units_(std::move(units)),
      layout_(units_, options.ranks),
      values_{"values", options.value_dtype, &Parameter::bind_value},
      grads_{"gradients", options.grad_dtype, &Parameter::bind_grad} {
  for (const Unit& unit : units_)
    parameters_.insert(parameters_.end(), unit.parameters.begin(), unit.parameters.end());
  for (const Parameter* p : parameters_)
    if (p->sync != parameters_[0]->sync)
      fail("ParameterStore: the gradients of " + p->name +
           " add up over other ranks than those of " + parameters_[0]->name +
           ", expected one group of ranks a store");
  const auto allocate = [&](Memory& memory, bool wanted, Purpose purpose) {
    memory.units.resize(units_.size());
    if (wanted) memory.all = Tensor::zeros({layout_.count()}, memory.dtype, device, purpose);
    for (std::size_t u = 0; u < units_.size(); ++u)
      point(memory, u, wanted ? of_unit(memory, u) : View());
  };
  allocate(values_, options.values, Purpose::Parameters);
  allocate(grads_, options.gradients, Purpose::Gradients);
}

void ParameterStore::point(const Memory& memory, std::size_t unit, View flat) {
  const FlatUnit& place = layout_.units()[unit];
  for (std::size_t i = 0; i < units_[unit].parameters.size(); ++i) {
    Parameter& p = *units_[unit].parameters[i];
    const Range& range = place.parameters[i];
    (p.*memory.point)(
        flat ? flat.flat(range.begin - place.range.begin, range.count()).reshaped(p.shape) : flat);
  }
}

void ParameterStore::bind(Memory& memory, std::size_t unit, Tensor flat) {
  const FlatUnit& place = layout_.units().at(unit);
  if (memory.all || memory.units[unit])
    fail(fmt::format("ParameterStore: the {} of unit {} have memory already", memory.what,
                     place.name));
  if (flat.count() != place.range.count() || flat.dtype() != memory.dtype)
    fail(fmt::format("ParameterStore: {} of unit {}: found {} x {}, expected {} x {}", memory.what,
                     place.name, flat.count(), name_of(flat.dtype()), place.range.count(),
                     name_of(memory.dtype)));
  point(memory, unit, flat);
  memory.units[unit] = std::move(flat);
}

Tensor ParameterStore::unbind(Memory& memory, std::size_t unit) {
  if (!memory.units.at(unit))
    fail(fmt::format("ParameterStore: no {} are bound to unit {}", memory.what,
                     layout_.units()[unit].name));
  point(memory, unit, View());
  return std::exchange(memory.units[unit], Tensor());
}

View ParameterStore::all(const Memory& memory) const {
  if (!memory.all)
    fail(fmt::format("ParameterStore: the {} are bound unit by unit, or not at all", memory.what));
  return memory.all;
}

View ParameterStore::of_unit(const Memory& memory, std::size_t unit) const {
  const FlatUnit& place = layout_.units().at(unit);
  if (memory.all) return memory.all.view().flat(place.range.begin, place.range.count());
  if (!memory.units[unit])
    fail(fmt::format("ParameterStore: the {} of unit {} are not bound", memory.what, place.name));
  return memory.units[unit];
}

void ParameterStore::initialize(std::uint64_t seed) {
  for (std::size_t u = 0; u < units_.size(); ++u) initialize(u, seed);
}

void ParameterStore::initialize(std::size_t unit, std::uint64_t seed) {
  for (const Parameter* p : units_.at(unit).parameters)
    draw(p->value().reshaped({p->shape.count()}), *p, 0, seed);
}

void ParameterStore::clear_grads() {
  for (Parameter* p : parameters_) p->has_grad = false;
}

void ParameterStore::complete_grads() {
  for (std::size_t u = 0; u < units_.size(); ++u) complete_grads(u);
}

void ParameterStore::complete_grads(std::size_t unit) {
  for (Parameter* p : units_.at(unit).parameters)
    if (!p->has_grad) {
      p->grad().device().zero(p->grad());
      p->has_grad = true;
    }
}

std::int64_t ParameterStore::parameter_count() const {
  std::int64_t count = 0;
  for (const Parameter* p : parameters_) count += p->shape.count();
  return count;
}

}  // namespace aisc
