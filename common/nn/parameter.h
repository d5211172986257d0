// Parameters: what layers declare. A ParameterStore allocates them and binds value and grad.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/core/range.h"
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

// A table that the first and the last stage of a pipeline both have: the gradients of the two are
// summed.
enum class Tied { No, First, Last };

struct Parameter {
  std::string name;    // "blocks.3.mlp.fc.weight": unique in a model, keys the random values
  Shape shape;         // of this rank's part
  Shape global_shape;  // of the whole
  int split_dim = -1;  // the dimension in which ranks differ; -1: every rank has all of it
  std::int64_t split_begin = 0;  // where this rank's part begins in it
  Init init;
  bool decay = false;  // weight decay: matrices yes, biases and norms no
  Sync sync = Sync::Data;
  Tied tied = Tied::No;
  // Not 0: an optimizer moves it by so much against the sign of its gradient, and by nothing else.
  double sign_step = 0;

  // What a store has bound: (shape), in the model's type; of the gradient that or a longer one.
  // Both throw Error naming the parameter while nothing is bound.
  const View& value() const { return bound(value_, "values"); }
  const View& grad() const { return bound(grad_, "gradients"); }
  void bind_value(View value) { value_ = value; }  // an empty view: unbinds
  // What is bound counts as not written to.
  void bind_grad(View grad) { grad_ = grad, has_grad = false; }

  // False until something was written to `grad` in this step.
  bool has_grad = false;
  // How the next contribution enters `grad`: the first of a step overwrites (which saves zeroing
  // and reading it), later ones accumulate. The caller then must write.
  ops::Into next_grad() {
    const bool first = !has_grad;
    has_grad = true;
    return first ? ops::Into::Overwrite : ops::Into::Accumulate;
  }

 private:
  const View& bound(const View& view, const char* what) const;

  View value_, grad_;
};

// A whole parameter: what most layers have on one rank.
Parameter whole_parameter(std::string name, const Shape& shape, Init init, bool decay);
// Part number `part` of `parts` equal ones along `dim`. Throws Error if they are not equal.
Parameter split_parameter(std::string name, const Shape& global_shape, int dim, int part, int parts,
                          Init init, bool decay);

// Elements `local` .. `local + count` of a rank's part are `global` .. of the whole.
struct GlobalRun {
  std::int64_t local, global, count;
};
// Where elements [begin, end) of this rank's part lie in the whole, in their order: one run for a
// whole parameter or a split along dimension 0, one a row for a split along dimension 1. Throws
// Error for a range outside the part.
std::vector<GlobalRun> global_runs(const Parameter& p, Range part);

// Fills `out` (n) with the initial values of elements begin .. begin + n of this rank's part, drawn
// from (seed, name, global index): the same for any split over ranks.
void draw(View out, const Parameter& p, std::int64_t begin, std::uint64_t seed);

// Parameters that are gathered, reduced and freed together: usually a layer's.
struct Unit {
  std::string name;
  std::vector<Parameter*> parameters;
};

}  // namespace aisc
