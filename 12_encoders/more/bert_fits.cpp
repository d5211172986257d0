#include "12_encoders/more/bert_fits.h"

#include <algorithm>
#include <memory>
#include <mutex>

#include "06_tensor_parallel/parallel_block.h"
#include "07_sequence_parallel/context_parallel.h"
#include "07_sequence_parallel/more/what_fits.h"
#include "12_encoders/bert.h"
#include "12_encoders/masked_words.h"
#include "12_encoders/more/blank_samples.h"
#include "common/model/emulated_device.h"
#include "common/train/trainer.h"

namespace aisc {
namespace {

std::int64_t masked_of(const BertFit& fit) {
  return fit.masked > 0 ? fit.masked : most_masked(fit.tokens);
}

StepParts parts_of(const BertFit& fit) {
  StepParts parts;
  const bool kept = fit.scores == FitScores::Kept;
  if (kept) parts = stored_attention();
  if (fit.ranks > 1 && fit.split == BertSplit::Tensor) parts = tensor_parallel(std::move(parts));
  if (fit.ranks > 1 && fit.split == BertSplit::Sequence)
    parts = context_parallel(kept ? ContextForm::Rsa : ContextForm::Ring, std::move(parts));
  return bert({.batch = fit.samples, .predictions = masked_of(fit)}, std::move(parts));
}

}  // namespace

bool can_share(const BertFit& fit) {
  if (fit.split == BertSplit::Tensor) return bert_base(fit).model.heads % fit.ranks == 0;
  return fit.scores == FitScores::Again || fit.tokens % fit.ranks == 0;
}

TrainConfig bert_base(const BertFit& fit) {
  constexpr std::int64_t kBlocks = 12;
  return {.model = {.layers = kBlocks,
                    .heads = 12,
                    .width = 768,
                    .context = fit.tokens,
                    .vocabulary = 30522,
                    // Divided by all numbers of ranks that divide the heads.
                    .vocabulary_multiple = 384,
                    .dropout = 0.1,
                    .dtype = DType::BF16,
                    .encoder_blocks = kBlocks},
          .gradient_dtype = DType::BF16,
          .batch = fit.samples,
          .tp = fit.split == BertSplit::Tensor ? fit.ranks : 1,
          .cp = fit.split == BertSplit::Sequence ? fit.ranks : 1};
}

std::int64_t step_bytes(const BertFit& fit, double capacity) {
  Machine machine = find_machine("limitless");
  machine.capacity = capacity;
  std::int64_t most = 0;
  std::mutex mutex;
  launch(on_machine(machine, fit.ranks, {.meta = true}), [&](const Rank& rank) {
    Trainer trainer(rank, bert_base(fit), parts_of(fit));
    trainer.step(BlankPairs(fit.tokens, masked_of(fit)));
    const std::lock_guard lock(mutex);
    most = std::max(most, rank.device.ledger().total.peak_bytes);
  });
  return most;
}

std::int64_t most_samples(BertFit fit, double capacity) {
  return largest_that_fits([&](std::int64_t n) {
    fit.samples = n;
    return static_cast<double>(step_bytes(fit)) <= capacity;
  });
}

std::int64_t most_tokens(BertFit fit, double capacity, std::int64_t step) {
  return step * largest_that_fits([&](std::int64_t n) {
           fit.tokens = step * n;
           return static_cast<double>(step_bytes(fit)) <= capacity;
         });
}

}  // namespace aisc
