// What a step holds and sends on a rank: told before a run, by the same step without numbers, and
// measured beside it at the end.
#pragma once

#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "common/train/trainer.h"

namespace aisc {

// Bytes that a rank sends in a step, by those to whom: of collectives what a ring sends, 2 (N -
// 1)/N of an all-reduce's bytes and (N - 1)/N of a gather's and a scatter's.
struct SentBytes {
  double data = 0;     // to the ranks that share each batch; of shards in groups, to its own group
  double across = 0;   // of shards in groups: to the ranks that have the same
  double tensor = 0;   // to those that share each layer
  double context = 0;  // to those that share each sequence
  double experts = 0;  // to those that together have all experts
  double stages = 0;   // activations and their gradients, to the next stage and the one before
  double tables = 0;   // between the first and the last stage, of the table that both have
  double sums = 0;     // of a mesh: the few numbers that all add up
  double all() const { return data + across + tensor + context + experts + stages + tables + sums; }
};

// Of the calls between two looks at the statistics of a communicator of `ranks`.
double ring_bytes(const CommStats& before, const CommStats& after, int ranks);

// Counts from now on. Rank and trainer must outlive it.
class SentMeter {
 public:
  SentMeter(const Rank& rank, const Trainer& trainer);
  SentBytes read() const;

 private:
  struct Counted {
    const Communicator* ranks;
    double SentBytes::*to;
    CommStats before;
  };
  std::vector<Counted> counted_;
};

Copied copied_since(const Copied& before, const Copied& now);

// Measured: the last step that a run has taken, on its rank 0. Bytes held are those that the device
// gave out in it.
struct StepBooks {
  Ledger ledger;  // live between two steps, peaks of one
  SentBytes sent;
  Ledger host = {};    // of what lies there
  Copied copied = {};  // to the host and from it
};

// What a rank holds at most, where it holds most of all ranks.
struct NeededBytes {
  double model = 0;  // weights, gradients, the optimizer's state
  double activations = 0;
};

// Takes two steps of this configuration on a machine without limits, without numbers, and returns
// the second's on rank 0: exact but for activations, where ranks or micro-batches have different
// shares of the batch (the largest are counted), and for a row of the table where parts of layers
// are not equally large. Of ranks that do the same one is run for all, unless `alike` is false.
// `data`: what is learnt; null: a GPT's windows. Throws Error above 4,096 ranks of a stage.
struct PlannedStep {
  StepBooks books;
  NeededBytes needed;
};
PlannedStep plan_step(const TrainConfig& config, int ranks, const StepParts& parts,
                      bool alike = true, const SampleSource* data = nullptr);

// A table of it, with what was measured beside it unless that is null.
std::string plan_text(const TrainConfig& config, int ranks, const StepBooks& planned,
                      const StepBooks* measured = nullptr);

}  // namespace aisc
