#include "12_encoders/bert.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "06_tensor_parallel/vocab_parallel_loss.h"
#include "06_tensor_parallel/vocab_parallel_table.h"
#include "07_sequence_parallel/token_share.h"
#include "12_encoders/bert_embedding.h"
#include "12_encoders/bert_head.h"
#include "12_encoders/bert_loss.h"
#include "12_encoders/bert_rows.h"
#include "12_encoders/erf_gelu.h"
#include "12_encoders/post_norm.h"
#include "common/core/error.h"
#include "common/nn/cross_entropy.h"
#include "common/nn/layer_norm.h"
#include "common/nn/sequence.h"

namespace aisc {
namespace {

using std::make_unique;
using Wanted = const GptParts::Wanted&;

std::unique_ptr<Layer> bert_attention(Wanted w) {
  const std::int64_t C = w.config.width;
  return in_sequence(w.rank, w.name, w.parts.column(w.part(".qkv"), {C, 3 * C}), w.parts.core(w),
                     w.parts.row(w.part(".project"), {C, C}), w.parts.dropout(w.part(".dropout")));
}

std::unique_ptr<Layer> bert_mlp(Wanted w) {
  const std::int64_t C = w.config.width, hidden = 4 * C;
  return in_sequence(w.rank, w.name, w.parts.column(w.part(".fc"), {C, hidden}),
                     make_unique<ErfGelu>(w.rank, w.name + ".gelu"),
                     w.parts.row(w.part(".project"), {hidden, C}),
                     w.parts.dropout(w.part(".dropout")));
}

std::unique_ptr<Layer> bert_block(Wanted w) {
  if (w.config.sees(w.block) != Sees::All)
    fail(fmt::format("bert: {} sees earlier tokens alone: expected {} encoder blocks, found {}",
                     w.name, w.config.layers, w.config.encoder_blocks));
  const auto branch = [&](const char* part, const GptParts::Make& make, const char* norm) {
    return make_unique<PostNormBranch>(w.rank, w.name + part, make(w.part(part)),
                                       w.parts.norm(w.part(norm)));
  };
  return in_sequence(w.rank, w.name, branch(".attention", w.parts.attention, ".norm1"),
                     branch(".mlp", w.parts.mlp, ".norm2"));
}

}  // namespace

GptParts bert_parts(const BertOptions& options, GptParts parts, Mesh* mesh) {
  Communicator* const tp = mesh && mesh->tp().size() > 1 ? &mesh->tp() : nullptr;
  Communicator* const token_ranks = parts.token_parts > 1 ? tp : nullptr;
  parts.norm = [options, token_ranks](Wanted w) {
    std::unique_ptr<Layer> norm =
        make_unique<LayerNorm>(w.rank, w.name, w.config.width, options.epsilon);
    return token_ranks ? summed_over_tokens(std::move(norm)) : std::move(norm);
  };
  parts.positions = [positions = parts.positions, token_ranks](Wanted w) {
    return in_sequence(w.rank, w.name, positions(w),
                       make_unique<Segments>(w.rank, w.config.width, token_ranks),
                       w.parts.norm({w.rank, "embedding_norm", w.config, w.parts}));
  };
  parts.attention = bert_attention;
  parts.mlp = [of_experts = parts.mlp](Wanted w) {
    return w.config.has_experts(w.block) ? of_experts(w) : bert_mlp(w);
  };
  parts.block = bert_block;
  parts.last = [options, token_ranks](Wanted w) {
    return make_unique<BertRows>(w.rank, w.config.width, options.epsilon, token_ranks);
  };
  parts.head = [options, tp](Wanted w, Parameter* shared) {
    return shared ? make_unique<BertHead>(w.rank, *shared, options.predictions, tp)
                  : make_unique<BertHead>(w.rank, last_table(w), options.predictions, tp);
  };
  parts.loss = [options, words = parts.loss](Wanted w) {
    return make_unique<BertLoss>(w.rank, words(w), w.parts.table(w).shape[0], options.batch,
                                 options.predictions);
  };
  return parts;
}

StepParts bert(const BertOptions& options, StepParts parts) {
  for (const auto& [what, value] :
       {std::pair{"batch", options.batch}, std::pair{"predictions", options.predictions}})
    if (value < 1) fail(fmt::format("bert: {} is {}, expected 1 or more", what, value));
  parts.architecture = [options](GptParts of_gpt, Mesh* mesh) {
    return bert_parts(options, std::move(of_gpt), mesh);
  };
  return parts;
}

}  // namespace aisc
