// Whether more experts learn better at as many FLOPs a token, and how busy each of them is
// meanwhile.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/data/tokens.h"
#include "common/train/trainer.h"

namespace aisc {

// How many tokens of the validation windows chose each expert first, of all layers that have
// some: a row a layer.
using ExpertLoads = std::vector<std::vector<std::int64_t>>;

// Of one layer the share of tokens that its busiest expert has, 1/E where all are equally busy; and
// the entropy of the shares over ln E: 1 where they are equal, 0 where one expert has all tokens.
// Throws Error where no token was counted.
double busiest_share(const std::vector<std::int64_t>& loads);
double load_entropy(const std::vector<std::int64_t>& loads);

struct StudyPoint {
  std::int64_t step = 0;
  double loss = 0;         // of validation, nats a token; without a limit of capacity
  ExpertLoads loads = {};  // empty: no experts

  double busiest() const;  // means over the layers; 0 without experts
  double entropy() const;
};

// A model of a GPT or of a GPT with experts (router "switch") that is trained on one rank. The
// order of the samples is the same for all seeds of parameters and all models. Looks at validation
// loss and loads before the first step and then every so many steps.
struct ExpertStudy {
  TrainConfig config;
  TokenView training, validation;
  std::int64_t windows = 32;     // of the validation text
  std::int64_t look_every = 50;  // steps
};
std::vector<StudyPoint> run_study(const Rank& rank, const ExpertStudy& study);

// Independent studies, `at_once` threads with one after another.
std::vector<std::vector<StudyPoint>> run_studies(const std::vector<ExpertStudy>& studies,
                                                 int at_once);

// `experts` 1: dense. 3 blocks of 64 columns; every one has experts, with room for twice the even
// share of a sample.
TrainConfig study_config(std::int64_t experts, std::int64_t steps, std::uint64_t seed,
                         double balance = 0.01);

}  // namespace aisc
