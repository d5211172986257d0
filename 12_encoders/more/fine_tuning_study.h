// What pre-training is worth: a small BERT that has read a course's prose is fine-tuned, beside one
// of the same sizes that begins at random.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "12_encoders/more/paragraph_samples.h"
#include "common/train/trainer.h"

namespace aisc {

struct TuningSizes {
  std::int64_t vocabulary = 3000;
  SpecialIds special = {};
  std::int64_t layers = 3, width = 128, context = 64;
  double dropout = 0.1;
  std::int64_t pretraining_batch = 32, batch = 16;

  GptConfig model() const;  // an encoder of heads of 32 columns
};

// The weights of a trained model, by name, in its own type.
using Weights = std::map<std::string, std::vector<float>>;

struct PretrainedPoint {
  std::int64_t step = 0;
  double loss =
      0;  // of masked words and pairs together, nats: a mean over the steps up to this one
  // Shares that are right of samples of the same text that no step has: words behind masks, pairs.
  double words = 0, pairs = 0;
};
struct Pretraining {
  Weights weights;
  std::vector<PretrainedPoint> points;
};
// A BERT that learns masked words and pairs of these documents for so many steps, at a peak rate of
// `rate`, on one rank. `seed`: of weights, samples, masks and dropout.
Pretraining pretrain(const Rank& rank, const TuningSizes& sizes, const Documents& documents,
                     std::int64_t steps, double rate, std::uint64_t seed);

struct TuningPoint {
  std::int64_t step = 0;
  double accuracy = 0, loss = 0;  // of the held-out texts
};
struct TuningRun {
  std::int64_t labels = 0;
  std::span<const LabelledTokens> training, held_out;
  const Weights* pretrained = nullptr;  // null: everything begins at random
  std::int64_t steps = 0, look_every = 1;
  double rate = 5e-4;
  // Of what is drawn: the order of texts, dropout, the classifier; and all weights of a run that
  // begins at random.
  std::uint64_t seed = 1;
};
// Before the first step, and then every so many steps. One rank.
std::vector<TuningPoint> run_tuning(const Rank& rank, const TuningSizes& sizes,
                                    const TuningRun& run);
// Independent runs, `at_once` threads with one after another.
std::vector<std::vector<TuningPoint>> run_tunings(const TuningSizes& sizes,
                                                  const std::vector<TuningRun>& runs, int at_once);

// The first step at which the accuracy is `wanted` or more; -1: it never is.
std::int64_t steps_to(const std::vector<TuningPoint>& points, double wanted);
double best_accuracy(const std::vector<TuningPoint>& points);

}  // namespace aisc
