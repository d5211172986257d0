// BERT with a classifier in place of its heads, on any layout of ranks.
#pragma once

#include <cstdint>
#include <span>

#include "common/train/trainer.h"

namespace aisc {

struct FineTuneOptions {
  std::int64_t labels = 0;
  double epsilon = 1e-12;  // of all norms
};

// bert_parts() up to the blocks; then x (B, T, C) -> the pooler's (B, C) of each text's [CLS] ->
// dropout -> Classifier (B, labels) -> cross entropy over the labels. Without picked rows the first
// token of each sample is its [CLS]. What BERT has for masked words and pairs is not there, nor is
// its table on a pipeline's last stage. Tensor ranks have pooler and classifier whole.
//
// Names of its parameters: BERT's up to blocks.N and pooler, then classifier.{weight, bias}.
GptParts fine_tuned_parts(const FineTuneOptions& options, GptParts parts, Mesh* mesh);

// For a Trainer, whose samples give batches with lengths, one picked place a sample and its label
// (paragraph_samples.h). Throws Error for fewer than 2 labels.
StepParts fine_tuned(const FineTuneOptions& options, StepParts parts = {});

struct Judged {
  double loss = 0;  // nats a text
  std::int64_t right = 0, texts = 0;
  double accuracy() const { return static_cast<double>(right) / static_cast<double>(texts); }
};
// Of all ranks' windows, as Trainer::evaluate() takes them: those of a pipeline, or that share
// layers or texts, have the same, and of data ranks some may have none. `rank`: of the trainer.
// Collective. Throws Error for a trainer of another model, and as evaluate() does.
Judged judge(const Rank& rank, const Trainer& trainer, std::span<const Batch> windows);

}  // namespace aisc
