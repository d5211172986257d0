// Parameters: what layers declare. A ParameterStore allocates them and binds value and grad.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/core/tensor.h"
#include "common/ops/ops.h"

namespace aisc {

struct Init {
  enum class Kind { Constant, Normal };
  Kind kind = Kind::Constant;
  double value = 0;         // the constant, or the standard deviation
  std::int64_t drawn = -1;  // elements from this global index on start at 0: padding; -1: none

  static Init constant(double value) { return {Kind::Constant, value}; }
  static Init normal(double stddev, std::int64_t drawn = -1) {
    return {Kind::Normal, stddev, drawn};
  }
};

// The ranks whose gradients of a parameter add up.
enum class Sync {
  Data,           // dp x cp
  ExpertData,     // the ranks that hold the same expert
  DataAndTensor,  // also tp: layer norms under sequence parallelism
};

struct Parameter {
  std::string name;    // "blocks.3.mlp.fc.weight": unique in a model, keys the random values
  Shape shape;         // of this rank's part
  Shape global_shape;  // of the whole
  int split_dim = -1;  // the dimension in which ranks differ; -1: every rank has all of it
  std::int64_t split_begin = 0;  // where this rank's part begins in it
  Init init;
  bool decay = false;  // weight decay: matrices yes, biases and norms no
  Sync sync = Sync::Data;

  View value;  // bound by the store, in the model's type
  View grad;   // bound by the store; may be longer than the value's type
  // False until something was written to `grad` in this step.
  bool has_grad = false;

  // How the next contribution enters `grad`: the first of a step overwrites (which saves zeroing
  // and reading it), later ones accumulate. The caller then must write.
  ops::Into next_grad() {
    const bool first = !has_grad;
    has_grad = true;
    return first ? ops::Into::Overwrite : ops::Into::Accumulate;
  }
};

// A whole parameter: what most layers have on one rank.
Parameter whole_parameter(std::string name, const Shape& shape, Init init, bool decay);

// Parameters that are gathered, reduced and freed together: usually a layer's.
struct Unit {
  std::string name;
  std::vector<Parameter*> parameters;
};

}  // namespace aisc
