#include "08_moe/more/paper_models.h"

#include "08_moe/moe_layer.h"
#include "common/model/emulated_device.h"
#include "common/nn/sequence.h"

namespace aisc {
namespace {

std::unique_ptr<Layer> dense_mlp(const GptParts::Wanted& w, std::int64_t hidden) {
  const std::int64_t C = w.config.width;
  return in_sequence(
      w.rank, w.name,
      w.parts.column(w.part(".fc"), {.in = C, .out = hidden, .gelu = Linear::Gelu::Behind}),
      w.parts.row(w.part(".project"),
                  {hidden, C, w.config.residual_stddev(), Linear::Gelu::Before}));
}

}  // namespace

GptParts PaperModel::parts(Communicator& experts) const {
  GptParts parts = gpt2_parts();
  parts.mlp = [model = *this,
               ranks = expert_ranks(experts)](const GptParts::Wanted& w) -> std::unique_ptr<Layer> {
    if (!model.has_experts(w.block)) return dense_mlp(w, model.hidden);
    return std::make_unique<MoeLayer>(
        w.rank, w.name,
        MoeLayer::Options{.experts = w.config.experts,
                          .width = w.config.width,
                          .hidden = model.expert_hidden,
                          .residual_stddev = w.config.residual_stddev()},
        ranks, Samples(),
        w.config.experts.shared ? dense_mlp(w.part(".shared"), model.expert_hidden) : nullptr);
  };
  return parts;
}

PaperModel gshard(std::int64_t experts, std::int64_t layers, double billions) {
  return {.name = "GShard",
          .source = "arXiv 2006.16668",
          .billions = billions,
          .config = {.layers = layers,
                     .heads = 16,
                     .width = 1024,
                     .context = 1024,
                     .vocabulary = 64000,
                     .dtype = DType::BF16,
                     .experts = {.count = experts, .every = 2, .router = "top2", .capacity = 2}},
          .hidden = 8192,
          .expert_hidden = 8192,
          .devices = static_cast<int>(experts),
          .most_expert_ranks = static_cast<int>(experts),
          .samples = 2,
          .batch = 2 * experts};
}

std::span<const PaperModel> paper_models() {
  static const PaperModel kModels[] = {
      // The encoder's and the decoder's 12 layers as 24 of a decoder. An expert of the paper has
      // three matrices of 768 x 2048 (GEGLU): two of 768 x 3072 are as many weights and FLOPs.
      {.name = "Switch-Base",
       .source = "arXiv 2101.03961",
       .billions = 7,
       .config = {.layers = 24,
                  .heads = 12,
                  .width = 768,
                  .context = 512,
                  .vocabulary = 32128,
                  .dtype = DType::BF16,
                  .experts = {.count = 128, .every = 2, .router = "switch", .capacity = 1.25}},
       .hidden = 3072,
       .expert_hidden = 3072,
       .devices = 32,
       .most_expert_ranks = 128,
       .samples = 64,
       .batch = 2048},
      gshard(2048, 36, 600),
      // Experts that take tokens, 8 times the even share, send as many rows as 8 of 256 a token.
      {.name = "DeepSeek-V3",
       .source = "arXiv 2412.19437",
       .billions = 671,
       .active_billions = 37,
       .config = {.layers = 61,
                  .heads = 128,
                  .width = 7168,
                  .context = 4096,
                  .vocabulary = 129280,
                  .dtype = DType::BF16,
                  .experts = {.count = 256,
                              .every = 1,
                              .router = "expert-choice",
                              .capacity = 8,
                              .balance = 0,
                              .z_loss = 0,
                              .shared = true}},
       .hidden = 27648,
       .expert_hidden = 3072,
       .dense_blocks = 3,
       .devices = 2048,
       .stages = 16,
       .most_expert_ranks = 64,
       .samples = 1,
       .batch = 15360,
       .blocks = {.begin = 4, .end = 8, .embedding = false, .head = false}}};
  return kModels;
}

ParameterCounts parameters_of(const PaperModel& model) {
  ParameterCounts counts;
  Machine machine = find_machine("limitless");
  const GptExperts& experts = model.config.experts;
  launch(on_machine(machine, 1, {.meta = true}), [&](const Rank& rank) {
    const Model whole = make_gpt(rank, model.config, model.parts(rank.world));
    for (const auto& layer : whole.layers)
      for (const Parameter* p : layer->parameters()) {
        const auto n = static_cast<double>(p->init.drawn >= 0 ? p->init.drawn : p->shape.count());
        counts.all += n;
        counts.of_a_token += p->sync == Sync::ExpertData
                                 ? n * experts.chosen() / static_cast<double>(experts.count)
                                 : n;
      }
  });
  return counts;
}

}  // namespace aisc
