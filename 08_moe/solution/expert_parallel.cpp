#include "08_moe/expert_parallel.h"

#include "08_moe/moe_layer.h"
#include "common/nn/sequence.h"

namespace aisc {

GptParts expert_parts(GptParts parts, Mesh* mesh, TokenPartOf context, int ranks_per_node) {
  const bool divided = parts.token_parts > 1;
  const std::shared_ptr<const ExpertRanks> ranks =
      mesh ? expert_ranks(mesh->experts(), ranks_per_node) : nullptr;
  parts.mlp = [mesh, ranks, context, divided,
               dense = parts.mlp](const GptParts::Wanted& w) -> std::unique_ptr<Layer> {
    if (!w.config.has_experts(w.block)) return dense(w);
    const auto of = [&](auto direction) { return mesh ? &(mesh->*direction)() : nullptr; };
    const std::int64_t C = w.config.width, hidden = 4 * C;
    std::unique_ptr<Layer> shared;
    if (w.config.experts.shared) {
      const GptParts::Wanted s = w.part(".shared");
      shared = in_sequence(
          w.rank, s.name,
          w.parts.column(s.part(".fc"), {.in = C, .out = hidden, .gelu = Linear::Gelu::Behind}),
          w.parts.row(s.part(".project"),
                      {hidden, C, w.config.residual_stddev(), Linear::Gelu::Before}));
    }
    return in_sequence(
        w.rank, w.name,
        std::make_unique<MoeLayer>(w.rank, w.name,
                                   MoeLayer::Options{.experts = w.config.experts,
                                                     .width = C,
                                                     .hidden = hidden,
                                                     .residual_stddev = w.config.residual_stddev(),
                                                     .seed = w.config.seed},
                                   ranks, Samples(of(&Mesh::tp), of(&Mesh::cp), divided, context),
                                   std::move(shared)),
        w.parts.dropout(w.part(".dropout")));
  };
  return parts;
}

StepParts expert_parallel(StepParts parts, int ranks_per_node) {
  parts.experts = [context = parts.context, ranks_per_node](GptParts all, Mesh* mesh) {
    return expert_parts(std::move(all), mesh, context, ranks_per_node);
  };
  return parts;
}

}  // namespace aisc
