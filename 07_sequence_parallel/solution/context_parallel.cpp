#include "07_sequence_parallel/context_parallel.h"

#include "06_tensor_parallel/linear_products.h"
#include "07_sequence_parallel/ring_attention.h"
#include "07_sequence_parallel/ring_self_attention.h"
#include "07_sequence_parallel/ulysses.h"

namespace aisc {

StepParts context_parallel(ContextForm form, StepParts parts) {
  parts.context = [form](int rank, int ranks, std::int64_t tokens) {
    return token_part(form, rank, ranks, tokens);
  };
  parts.core = [form](const GptParts::Wanted& w, Mesh* mesh,
                      std::int64_t heads) -> std::unique_ptr<Layer> {
    Communicator& cp = mesh->cp();
    const Sees sees = w.config.sees(w.block);
    if (form == ContextForm::Ulysses)
      return std::make_unique<Ulysses>(w.rank, cp, w.name, heads, sees);
    if (form == ContextForm::Rsa) {
      even_share(cp, w.name, "tokens", w.config.context);
      auto dropout = std::make_unique<QueryDropout>(w.rank, mesh->tp(), w.name + ".probabilities",
                                                    w.config.dropout, w.config.seed, heads);
      return std::make_unique<RingSelfAttention>(w.rank, cp, w.name, heads, std::move(dropout),
                                                 sees);
    }
    return std::make_unique<RingAttention>(w.rank, cp, w.name, heads, form, sees);
  };
  return parts;
}

}  // namespace aisc
