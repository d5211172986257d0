#include "07_sequence_parallel/context_parallel.h"

#include "07_sequence_parallel/ring_attention.h"
#include "07_sequence_parallel/ulysses.h"

namespace aisc {

StepParts context_parallel(ContextForm form, StepParts parts) {
  parts.context = [form](int rank, int ranks, std::int64_t tokens) {
    return token_part(form, rank, ranks, tokens);
  };
  parts.core = [form](const GptParts::Wanted& w, Mesh* mesh,
                      std::int64_t heads) -> std::unique_ptr<Layer> {
    Communicator& cp = mesh->cp();
    if (form == ContextForm::Ulysses) return std::make_unique<Ulysses>(w.rank, cp, w.name, heads);
    return std::make_unique<RingAttention>(w.rank, cp, w.name, heads, form);
  };
  return parts;
}

}  // namespace aisc
