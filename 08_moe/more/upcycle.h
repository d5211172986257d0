// A model with experts that begins where a dense one ended (Komatsuzaki et al., "Sparse upcycling",
// arXiv 2212.05055): each expert is a copy of the MLP that was in its place, the rest is as it was,
// and the router is drawn.
//
// With gates that sum to 1 and room for all tokens the two models are one function, up to rounding:
// top2, noisy-top2 and bias. Not with switch, whose one gate is below 1.
#pragma once

#include <functional>
#include <optional>

#include "common/nn/model.h"

namespace aisc {

// The whole parameter of a dense model that `p` of one with experts starts from: p itself, or of
// "blocks.3.mlp.experts.fc.weight" (E, 4C, C) "blocks.3.mlp.fc.weight" (4C, C). None for a
// router's, which no dense model has. Throws Error for an expert that all tokens pass: beside
// copies of the MLP it would count the MLP twice.
std::optional<Parameter> dense_parameter(const Parameter& p);

// Fills `whole` (p.global_shape), on any device, from what `read_dense` fills of the dense model:
// `whole` itself, or its first expert, of which the others are copies. False where `p` is a
// router's: nothing was read or written. Takes no memory.
using ReadDense = std::function<void(const Parameter& dense, View whole)>;
bool upcycle(const Parameter& p, View whole, const ReadDense& read_dense);

// The same for all parameters of a model on one rank, whose values are bound: a Trainer's, whose
// optimizer keeps no copies in a longer type. Throws Error naming
// what `dense` lacks or has in another shape.
void upcycle_model(const Model& sparse, const Model& dense);

}  // namespace aisc
