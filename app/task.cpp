#include "app/task.h"

#include "app/generate.h"

namespace aisc {

bool shows_whole_texts(const Rank& rank, const Trainer& trainer) {
  if (trainer.stages() || trainer.config().cp > 1) return false;
  return takes_part(rank.world,
                    {.hooks = trainer.reducer().joins_forward() ? trainer.hooks() : Hooks(),
                     .mesh = trainer.mesh()});
}

}  // namespace aisc
