#include "app/task.h"

namespace aisc {

TextRanks text_ranks(const Trainer& trainer) {
  return {.hooks = trainer.reducer().joins_forward() ? trainer.hooks() : Hooks(),
          .mesh = trainer.mesh(),
          .stages = trainer.stages()};
}

bool shows_whole_texts(const Rank& rank, const Trainer& trainer) {
  return !trainer.stages() && trainer.config().cp == 1 &&
         takes_part(rank.world, text_ranks(trainer));
}

}  // namespace aisc
