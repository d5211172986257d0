// What the makers of schedules share.
#pragma once

#include <string>
#include <vector>

#include "05_pipeline/schedule.h"

namespace aisc {

// One stage each, and an empty list for each rank. Throws Error for less than 1 rank or 1
// micro-batch.
Schedule empty_schedule(const std::string& name, int ranks, int micro_batches);

// Two stages each, down_and_up(), and weight gradients by themselves; else the same.
Schedule empty_down_and_up(const std::string& name, int ranks, int micro_batches);

// Throws Error if `found` is less than `least`: "zb-h1: 0 ranks, at least 1 expected".
void check_at_least(const std::string& name, int found, const std::string& of_these, int least);

// At the end of each rank's list an update of each of its chunks, after all micro-batches.
void append_updates(Schedule& schedule);

// A list of actions on two chunks, where micro-batches come in their order, per kind and chunk.
class TwoChunkList {
 public:
  void forward(int chunk) { append(ActionKind::Forward, chunk); }
  void backward(int chunk) { append(ActionKind::Backward, chunk); }
  void weight_gradient(int chunk) { append(ActionKind::WeightGradient, chunk); }
  void whole_backward(int chunk) {
    backward(chunk);
    weight_gradient(chunk);
  }

  int count(ActionKind kind, int chunk) const;  // of these in the list
  const std::vector<Action>& actions() const { return actions_; }

 private:
  void append(ActionKind kind, int chunk) { actions_.push_back({kind, count(kind, chunk), chunk}); }

  std::vector<Action> actions_;
};

}  // namespace aisc
