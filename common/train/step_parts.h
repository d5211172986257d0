// The places of a training step in which techniques differ: how micro-batches run, how the
// gradients of all ranks become one, and the update. Trainer has a plain form of each; modules 02
// to 08 put others there, and module 11 combines them.
#pragma once

#include <functional>
#include <memory>

#include "common/data/batches.h"
#include "common/nn/driver.h"
#include "common/nn/parameter_store.h"
#include "common/optim/optimizer.h"

namespace aisc {

// One of a rank's micro-batches.
struct MicroBatch {
  Batch batch;
  Pass pass;
};
// Reads micro-batch m of the step, once each.
using ReadMicroBatch = std::function<MicroBatch(std::int64_t m)>;

// Runs a rank's `count` micro-batches forward and backward: the gradients of loss_factor * (the sum
// of their losses), which it returns in nats.
using MicroBatchLoop =
    std::function<double(const Rank& rank, const Model& model, std::int64_t count,
                         const ReadMicroBatch& read, double loss_factor, Hooks hooks)>;
// The plain one: each forward and backward before the next is read.
double one_after_another(const Rank& rank, const Model& model, std::int64_t count,
                         const ReadMicroBatch& read, double loss_factor, Hooks hooks);

// Makes one gradient of those of all ranks, while backward runs or after it. A rank's gradients are
// its samples' part of the mean over the global batch: their sum is that mean, also of unequal
// shares.
class Reducer : public LayerHook {
 public:
  Reducer(const Rank& rank, ParameterStore& store) : rank_(rank), store_(store) {}

  virtual void begin() {}       // before the first micro-batch of a step
  virtual void finish() = 0;    // after the last: now the gradients are what the update takes
  virtual double norm() const;  // of the gradients of finish(); the same on all ranks
  virtual void updated() {}     // after the update

 protected:
  const Rank& rank() const { return rank_; }
  ParameterStore& store() const { return store_; }

 private:
  Rank rank_;
  ParameterStore& store_;
};

// The plain one: one sum of all gradients, after backward.
class SumAtTheEnd final : public Reducer {
 public:
  using Reducer::Reducer;
  void finish() override;
};

struct TrainConfig;

// Where a function is empty the plain form is used: AdamW over all parameters, SumAtTheEnd,
// one_after_another.
struct StepParts {
  std::function<std::unique_ptr<Optimizer>(const Rank& rank, ParameterStore& store,
                                           const TrainConfig& config)>
      optimizer = {};
  std::function<std::unique_ptr<Reducer>(const Rank& rank, const Model& model,
                                         ParameterStore& store, Optimizer& optimizer)>
      reducer = {};
  MicroBatchLoop loop = {};
};

}  // namespace aisc
