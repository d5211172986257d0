// Owns the values and gradients of a model's parameters, flat, and binds the layers to them.
#pragma once

#include <cstdint>
#include <vector>

#include "common/nn/flat_layout.h"

namespace aisc {

class ParameterStore {
 public:
  struct Options {
    DType value_dtype = DType::F32;
    DType grad_dtype = DType::F32;  // F32 beside BF16 values accumulates without rounding
    int ranks = 1;                  // the ranks that units are padded for
    bool gradients = true;          // false, for a model that only generates: grad stays empty
  };

  // Allocates two flat tensors (purposes Parameters and Gradients) and points every parameter's
  // value and grad into them. The parameters must outlive the store or never be used after it.
  ParameterStore(Device& device, std::vector<Unit> units, const Options& options);

  // Draws every value from (seed, name, global index): the same model for any layout of ranks.
  void initialize(std::uint64_t seed);

  // Forgets the gradients: the next contribution to each overwrites.
  void clear_grads();
  // Sets to zero the gradients that nothing was written to in this step, so that all can be read.
  void complete_grads();

  const FlatLayout& layout() const { return layout_; }
  const std::vector<Parameter*>& parameters() const { return parameters_; }  // in forward order
  View values() const { return values_; }                                    // (layout().count())
  View grads() const { return grads_; }
  std::int64_t parameter_count() const;  // elements, without padding

 private:
  std::vector<Unit> units_;
  FlatLayout layout_;
  std::vector<Parameter*> parameters_;
  Tensor values_, grads_;
};

}  // namespace aisc
