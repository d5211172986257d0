// What a step holds and sends on a rank: told before a run, by the same step without numbers, and
// measured beside it at the end.
#pragma once

#include <array>
#include <string>

#include "common/comm/communicator.h"
#include "common/train/trainer.h"

namespace aisc {

// Measured: the last step that a run has taken, on its rank 0. Bytes held are those that the device
// gave out in it, bytes sent those of the communicator's calls in it.
struct StepBooks {
  Ledger ledger;  // live between two steps, peaks of one
  // Of what a step asks its communicator for: what a ring sends, 2 (N - 1)/N of an all-reduce's
  // bytes and (N - 1)/N of a gather's and a scatter's.
  double ring_bytes = 0;
};

// Of the calls of a step, between two looks at the statistics of a communicator of `ranks`.
double ring_bytes(const CommStats& before, const CommStats& after, int ranks);

// Takes two steps of this configuration on rank 0 of `ranks`, on a machine without limits, without
// numbers, and returns the second's: exact but for activations, where ranks or micro-batches have
// different shares of the batch (the smallest are counted). Of steps whose gradients are summed or
// scattered; Error for others, and above 4,096 ranks.
StepBooks plan_step(const TrainConfig& config, int ranks, const StepParts& parts);

// A table of it, with what was measured beside it unless that is null.
std::string plan_text(const TrainConfig& config, int ranks, const StepBooks& planned,
                      const StepBooks* measured = nullptr);

}  // namespace aisc
