// A GPT with experts, on any mesh.
#pragma once

#include "common/train/step_parts.h"

namespace aisc {

// `parts` whose blocks with experts (GptConfig::has_experts) have a MoeLayer in the place of the
// MLP. `mesh`: experts lie on the ranks of mesh->experts(), and the tokens of a sample on those of
// tp and cp; null: all on one rank. `context`: StepParts::context, beside cp. Nodes of how many of
// mesh->experts(): expert_ranks.h. Collective.
GptParts expert_parts(GptParts parts, Mesh* mesh, TokenPartOf context = {}, int ranks_per_node = 0);

// For a Trainer with config.model.experts, on config.ep groups of data-parallel ranks.
StepParts expert_parallel(StepParts parts = {}, int ranks_per_node = 0);

}  // namespace aisc
