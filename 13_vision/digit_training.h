// A classifier learns, its loop written out: on one rank or on several, of which some may have the
// stages of a pipeline, and each its part of every batch.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "13_vision/classifier_stages.h"
#include "13_vision/engine_steps.h"
#include "13_vision/image_set.h"

namespace aisc {

struct DigitData {
  ImageSet train, test;
};

struct DigitSteps {
  std::int64_t steps = 300, batch = 64;  // images of a step, of all ranks
  std::int64_t micro_batches = 1;        // of each rank's part
  int stages = 1;                        // of a pipeline; the ranks are a multiple
  std::string schedule = "1f1b";         // its order (05_pipeline/pipelined.h)
  double learning_rate = 4e-3;           // the largest; AdamW, warm-up and cosine
  std::uint64_t seed = 1;
};

// A twentieth of them, 1 at least.
std::int64_t warmup_of(std::int64_t steps);

// Called on every rank, with the mean loss of all images of some steps, the last among them.
using TellStep = std::function<void(std::int64_t step, double loss)>;

struct DigitsLearnt {
  double right = 0;                  // the share of the test images that is recognised
  std::vector<std::int64_t> load{};  // of each expert: it was chosen so often in the test
  std::int64_t parameters = 0;       // of the whole model
};

// Trains and tests. The ranks of a stage share a batch, and the norm and the experts are over them;
// each has an equal part of the experts. Statistics of a batch norm are of a micro-batch. The same
// on all ranks. Throws Error: ranks that are no multiple of the stages, a batch of less than one
// image a rank, and as best_cut(), make_digit_classifier() and PipelineRank. Collective.
DigitsLearnt train_digits(const Rank& rank, const ClassifierConfig& model, const DigitSteps& steps,
                          const DigitData& data, const TellStep& tell = {});

// The same by an engine, which knows the rates; the batch, its parts and the steps are `settings`'.
// Throws Error where these do not divide the batch, or have other ranks; as engine_step().
// Collective.
DigitsLearnt train_digits(const Rank& rank, Engine& engine, const EngineSettings& settings,
                          std::uint64_t seed, const DigitData& data, const TellStep& tell = {});

}  // namespace aisc
