// One rank's training run: a model, its parameters, an optimizer, and the step that moves them.
#pragma once

#include <cstdint>
#include <span>

#include "common/data/batches.h"
#include "common/nn/driver.h"
#include "common/nn/parameter_store.h"
#include "common/optim/optimizer.h"
#include "common/optim/schedule.h"

namespace aisc {

struct TrainConfig {
  GptConfig model;
  DType gradient_dtype = DType::F32;  // the model's type, or F32 beside a shorter one
  std::int64_t batch = 16;            // samples of `model.context` tokens per step, over all ranks
  std::int64_t micro_batches = 1;     // the parts that a step is computed in; divides batch
  std::int64_t steps = 1000;
  double learning_rate = 1e-3, min_learning_rate = 1e-4;
  std::int64_t warmup_steps = 100;
  double weight_decay = 0.1, beta1 = 0.9, beta2 = 0.95;
  double clip = 1.0;  // global norm; 0: none
  std::uint64_t seed = 1;

  void validate() const;  // throws Error: what, found, expected
};

struct StepReport {
  double loss;  // nats per token, mean over the global batch
  double learning_rate;
  double gradient_norm;  // before clipping
};

class Trainer {
 public:
  // Draws the parameters from config.seed. Throws Error for sizes that do not fit together.
  Trainer(const Rank& rank, const TrainConfig& config);

  // To be called after parameters() were filled from elsewhere: the optimizer's master copies of
  // weights in a shorter type become copies of them.
  void take_weights();
  // Goes on as a run that took `steps` steps with `samples` samples, once parameters() and the
  // optimizer's state() hold what they held then: every later step is bitwise the same.
  void resume(std::int64_t steps, std::int64_t samples);

  // Step number steps_taken(): forward and backward of every micro-batch, clipping, one update.
  // Throws Error, with the weights untouched, if loss or gradients are not finite.
  StepReport step(const BatchSampler& data);

  // Mean loss of the windows, without dropout, `batch / micro_batches` at a time.
  double evaluate(std::span<const Batch> windows) const;

  std::int64_t steps_taken() const { return optimizer_.steps(); }
  std::int64_t samples_taken() const { return samples_; }
  const TrainConfig& config() const { return config_; }
  Gpt& model() { return model_; }
  const Gpt& model() const { return model_; }
  ParameterStore& parameters() { return store_; }
  const ParameterStore& parameters() const { return store_; }
  const Optimizer& optimizer() const { return optimizer_; }
  // Model FLOPs of one step, forward and backward (GptConfig::flops_per_token).
  double flops_per_step() const;

 private:
  Rank rank_;
  TrainConfig config_;
  Gpt model_;
  ParameterStore store_;
  AdamW optimizer_;
  CosineSchedule schedule_;
  std::int64_t samples_ = 0;
};

}  // namespace aisc
