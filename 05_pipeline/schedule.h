// The schedule of a pipeline, as data: what each rank does, in its order.
#pragma once

#include <string>
#include <vector>

#include "common/core/range.h"

namespace aisc {

// Ranks, stages and micro-batches are numbers; this is where they are in a list.

// Backward takes the gradient of a stage's output to that of its input; of the weights' gradients,
// too, unless the schedule splits them off (WeightGradient). Update: the optimizer's step.
enum class ActionKind { Forward, Backward, WeightGradient, Update };

// Of one micro-batch (from 0) on one of the rank's chunks of layers (from 0). An update is of a
// chunk, and its micro_batch the last one whose gradient is in it.
struct Action {
  ActionKind kind;
  int micro_batch = 0, chunk = 0;
  bool operator==(const Action&) const = default;
};

// The model is cut into stages, numbered in the order of forward. Each rank has one or more of
// them, its chunks. With several copies of the model (DualPipe) the stages are those of the first,
// then those of the second; each copy is a pipeline of its own, and nothing passes between them.
struct Schedule {
  std::string name;
  int micro_batches = 1;
  std::vector<std::vector<int>> stage_of = {};    // [rank][chunk]: each stage once
  int copies = 1;                                 // of the model
  bool splits_backward = false;                   // weight gradients are actions of their own
  std::vector<std::vector<Action>> actions = {};  // by rank

  int ranks() const { return static_cast<int>(stage_of.size()); }
  int chunks() const { return static_cast<int>(stage_of.at(0).size()); }  // the same on all ranks
  int stages() const { return ranks() * chunks(); }
};

// Where a stage is.
struct StagePlace {
  int rank, chunk;
  bool operator==(const StagePlace&) const = default;
};
// Of every stage, in their order. Throws Error where stage_of has not each stage once, or ranks
// have different numbers of chunks.
std::vector<StagePlace> stage_places(const Schedule& schedule);

// Stage s is chunk 0 of rank s.
std::vector<std::vector<int>> one_stage_each(int ranks);
// Stage c * ranks + r is chunk c of rank r (Narayanan et al., arXiv 2104.04473, section 2.2.2).
std::vector<std::vector<int>> round_robin(int ranks, int chunks);
// Down and up again: chunk 0 of rank r is stage r, chunk 1 stage 2 ranks - 1 - r (ZB-V, DualPipe).
std::vector<std::vector<int>> down_and_up(int ranks);

// "F3", "B3.1" (chunk 1), "W3", "U": for messages and pictures.
std::string to_string(const Action& action, int chunks = 1);
// "forward", "backward", "weight gradient", "update": parts of a trace, as timelines know them.
const char* part_of_step(ActionKind kind);

}  // namespace aisc
