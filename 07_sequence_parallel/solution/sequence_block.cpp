#include "07_sequence_parallel/sequence_block.h"

#include "06_tensor_parallel/parallel_block.h"
#include "07_sequence_parallel/token_linear.h"
#include "07_sequence_parallel/token_share.h"
#include "07_sequence_parallel/token_vocabulary.h"

namespace aisc {

using std::make_unique;

GptParts sequence_parallel_parts(Communicator& tp, GptParts parts) {
  using Wanted = const GptParts::Wanted&;
  parts = tensor_parallel_parts(tp, std::move(parts));
  parts.norm = [norm = parts.norm](Wanted w) { return summed_over_tokens(norm(w)); };
  parts.dropout = [&tp](Wanted w) {
    return make_unique<TokenShareDropout>(w.rank, tp, w.name, w.config.dropout, w.config.seed,
                                          w.parts.masks);
  };
  parts.positions = [&tp](Wanted w) {
    return make_unique<TokenSharePositions>(w.rank, tp, w.config.context, w.config.width);
  };
  parts.column = [&tp](Wanted w, const GptParts::LinearSizes& z) {
    return make_unique<GatheredColumnLinear>(w.rank, tp, w.name, z.in, z.out, z.stddev, z.gelu);
  };
  parts.row = [&tp](Wanted w, const GptParts::LinearSizes& z) {
    return make_unique<ScatteredRowLinear>(w.rank, tp, w.name, z.in, z.out, z.stddev, z.gelu);
  };
  parts.embedding = [&tp](Wanted w, Parameter table) {
    return make_unique<ScatteredEmbedding>(w.rank, tp, std::move(table), w.config.dtype);
  };
  parts.head = [&tp](Wanted w, Parameter* shared) {
    return shared ? make_unique<GatheredHead>(w.rank, tp, *shared)
                  : make_unique<GatheredHead>(w.rank, tp, last_table(w));
  };
  parts.token_parts = tp.size();
  return parts;
}

StepParts sequence_parallel(StepParts parts) {
  parts.split = [](GptParts whole, Communicator& tp) {
    return sequence_parallel_parts(tp, std::move(whole));
  };
  return parts;
}

}  // namespace aisc
