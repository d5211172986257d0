// What a model gets right of held-out samples, counted on any layout of ranks: by the loss, which
// alone sees the scores, wherever the last layer is.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/train/trainer.h"

namespace aisc {

struct Hits {
  std::int64_t right = 0, of = 0;
  double share() const { return static_cast<double>(right) / static_cast<double>(of); }
};

// Of each kind that is counted, in a batch: of the scores that the layers made of it. What has no
// target here (-1) is not counted.
using CountHits = std::function<std::vector<Hits>(const Loss& loss, const Tensor& scores,
                                                  const Tensor& targets, const Pass& pass)>;

// The places that have a target: how often it has the highest of its row's first `classes` scores.
// scores (N, ...), targets N, I32. Of equal scores the first counts.
Hits hits_of(ConstView scores, std::int64_t classes, ConstView targets);
// Whether that holds for each place: 1, 0, or -1 where there is no target.
std::vector<std::int8_t> places_right(ConstView scores, std::int64_t classes, ConstView targets);

// These parts, whose loss counts.
GptParts counting(GptParts parts, CountHits count);
StepParts counting(StepParts parts, CountHits count);

// Of bert(): hidden words, then pairs. `predictions`: BertOptions; `vocabulary`: without padding.
CountHits hits_of_bert(std::int64_t predictions, std::int64_t vocabulary);

struct CountedEvaluation {
  double loss = 0;  // Trainer::evaluate()
  std::vector<Hits> hits;
};
// Of all ranks' windows, as Trainer::evaluate() takes them: those of a pipeline, or that share
// layers or texts, have the same, and of data ranks some may have none. `kinds`: how many are
// counted, which ranks without a loss do not know. `rank`: of the trainer. Collective. Throws Error
// for a model whose loss does not count, where no sample had a target, and as evaluate() does.
CountedEvaluation evaluate_counting(const Rank& rank, const Trainer& trainer,
                                    std::span<const Batch> windows, std::size_t kinds);

}  // namespace aisc
