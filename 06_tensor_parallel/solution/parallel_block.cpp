#include "06_tensor_parallel/parallel_block.h"

#include "06_tensor_parallel/column_parallel.h"
#include "06_tensor_parallel/linear_products.h"
#include "06_tensor_parallel/row_parallel.h"
#include "06_tensor_parallel/vocab_parallel_loss.h"
#include "06_tensor_parallel/vocab_parallel_table.h"

namespace aisc {

using std::make_unique;

GptParts tensor_parallel_parts(Communicator& tp, GptParts parts) {
  using Wanted = const GptParts::Wanted&;
  parts.head_parts = tp.size();
  parts.core = [&tp, core = parts.core](Wanted w) {
    even_share(tp, w.name, "heads", w.config.heads);
    return core(w);
  };
  parts.column = [&tp](Wanted w, const GptParts::LinearSizes& z) {
    return make_unique<ColumnParallelLinear>(w.rank, tp, w.name, z.in, z.out, z.stddev, z.gelu);
  };
  parts.row = [&tp](Wanted w, const GptParts::LinearSizes& z) {
    return make_unique<RowParallelLinear>(w.rank, tp, w.name, z.in, z.out, z.stddev, z.gelu);
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
