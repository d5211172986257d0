// Owns the values and gradients of a model's parameters, flat, and binds the layers to them.
#pragma once

#include <cstdint>
#include <vector>

#include "common/nn/flat_layout.h"

namespace aisc {

// Of the parameters that have their Sync in common: each group of ranks has a store of its own.
class ParameterStore {
 public:
  struct Options {
    DType value_dtype = DType::F32;
    DType grad_dtype = DType::F32;  // F32 beside BF16 values accumulates without rounding
    int ranks = 1;                  // the ranks that units are padded for
    // Whether there is memory for all units, as long as the store lives. Without it each unit has
    // what is bound to it; a model that only generates has no gradients at all.
    bool values = true;
    bool gradients = true;
  };

  // Allocates flat tensors (purposes Parameters and Gradients) and points every parameter's value
  // and grad into them. The parameters must outlive the store or never be used after it. Throws
  // Error if they differ in their Sync.
  ParameterStore(Device& device, std::vector<Unit> units, const Options& options);

  // Gives a unit memory (its count in the layout) of the store's type, and takes it back. Throws
  // Error naming the unit: bound or unbound already, of another count or type, or the store has
  // memory for all of them. Gradients that are bound count as not written to.
  void bind_values(std::size_t unit, Tensor flat) { bind(values_, unit, std::move(flat)); }
  void bind_grads(std::size_t unit, Tensor flat) { bind(grads_, unit, std::move(flat)); }
  Tensor unbind_values(std::size_t unit) { return unbind(values_, unit); }
  Tensor unbind_grads(std::size_t unit) { return unbind(grads_, unit); }

  // Draws every value, of all units or of one, from (seed, name, global index): the same model for
  // any layout of ranks.
  void initialize(std::uint64_t seed);
  void initialize(std::size_t unit, std::uint64_t seed);

  // Forgets the gradients: the next contribution to each overwrites.
  void clear_grads();
  // Sets to zero the gradients that nothing was written to in this step, so that all can be read.
  void complete_grads();
  void complete_grads(std::size_t unit);

  const FlatLayout& layout() const { return layout_; }
  const std::vector<Unit>& units() const { return units_; }
  const std::vector<Parameter*>& parameters() const { return parameters_; }  // in forward order
  // All of them, (layout().count()), and a unit's, padding included. Throw Error naming the unit,
  // or what the store was built without, where there is no memory.
  View values() const { return all(values_); }
  View grads() const { return all(grads_); }
  View values(std::size_t unit) const { return of_unit(values_, unit); }
  View grads(std::size_t unit) const { return of_unit(grads_, unit); }
  bool has_grads(std::size_t unit) const { return grads_.all || grads_.units.at(unit); }
  DType value_dtype() const { return values_.dtype; }
  DType grad_dtype() const { return grads_.dtype; }
  std::int64_t parameter_count() const;  // elements, without padding

 private:
  struct Memory {
    const char* what;  // "values"
    DType dtype;
    void (Parameter::*point)(View);
    Tensor all = {};                 // for all units, or
    std::vector<Tensor> units = {};  // what is bound to each
  };
  void bind(Memory& memory, std::size_t unit, Tensor flat);
  Tensor unbind(Memory& memory, std::size_t unit);
  void point(const Memory& memory, std::size_t unit, View flat);  // flat empty: to nothing
  View all(const Memory& memory) const;
  View of_unit(const Memory& memory, std::size_t unit) const;

  std::vector<Unit> units_;
  FlatLayout layout_;
  std::vector<Parameter*> parameters_;
  Memory values_, grads_;
};

}  // namespace aisc
