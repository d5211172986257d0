#include "06_tensor_parallel/parallel_block.h"

#include "06_tensor_parallel/column_parallel.h"
#include "06_tensor_parallel/linear_products.h"
#include "06_tensor_parallel/row_parallel.h"
#include "06_tensor_parallel/vocab_parallel_loss.h"
#include "06_tensor_parallel/vocab_parallel_table.h"
#include "common/nn/attention.h"
#include "common/nn/dropout.h"
#include "common/nn/sequence.h"

namespace aisc {

using std::make_unique;

GptParts tensor_parallel_parts(Communicator& tp, GptParts parts) {
  using Wanted = const GptParts::Wanted&;
  parts.core = [&tp](Wanted w) {
    return make_unique<CausalCore>(w.rank, w.name, even_share(tp, w.name, "heads", w.config.heads));
  };
  parts.attention = [&tp](Wanted w) {
    const GptConfig& c = w.config;
    even_share(tp, w.name, "heads", c.heads);
    return in_sequence(
        w.rank, w.name,
        make_unique<ColumnParallelLinear>(w.rank, tp, w.name + ".qkv", c.width, 3 * c.width),
        w.parts.core(w),
        make_unique<RowParallelLinear>(w.rank, tp, w.name + ".project", c.width, c.width,
                                       c.residual_stddev()),
        make_unique<Dropout>(w.rank, w.name + ".dropout", c.dropout, c.seed));
  };
  parts.mlp = [&tp](Wanted w) {
    const GptConfig& c = w.config;
    const std::int64_t C = c.width, hidden = 4 * C;
    even_share(tp, w.name, "hidden columns", hidden);
    return in_sequence(w.rank, w.name,
                       make_unique<ColumnParallelLinear>(w.rank, tp, w.name + ".fc", C, hidden,
                                                         0.02, Linear::Gelu::Behind),
                       make_unique<RowParallelLinear>(w.rank, tp, w.name + ".project", hidden, C,
                                                      c.residual_stddev(), Linear::Gelu::Before),
                       make_unique<Dropout>(w.rank, w.name + ".dropout", c.dropout, c.seed));
  };
  parts.table = [&tp](Wanted w) { return part_of_table(tp, w.config); };
  parts.embedding = [&tp](Wanted w, Parameter table) {
    return make_unique<VocabParallelEmbedding>(w.rank, tp, std::move(table), w.config.dtype);
  };
  parts.head = [&tp](Wanted w, Parameter* shared) {
    return shared ? make_unique<VocabParallelHead>(w.rank, tp, *shared)
                  : make_unique<VocabParallelHead>(w.rank, tp, last_table(w));
  };
  parts.loss = [&tp](Wanted w) {
    return make_unique<VocabParallelCrossEntropy>(
        w.rank, tp, part_of_vocabulary(part_of_table(tp, w.config)), w.config.vocabulary);
  };
  return parts;
}

StepParts tensor_parallel(StepParts parts) {
  parts.split = [](GptParts whole, Communicator& tp) {
    return tensor_parallel_parts(tp, std::move(whole));
  };
  return parts;
}

}  // namespace aisc
