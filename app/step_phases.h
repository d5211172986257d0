// Measures what a step's time goes to, as DeepSpeed's wall_clock_breakdown says it.
#pragma once

#include "app/phase_seconds.h"
#include "common/comm/rank.h"
#include "common/train/step_parts.h"

namespace aisc {

// Measures them around a Trainer's step. A GPU is waited for at each layer, so that it computes
// with less overlap than without.
class StepPhases {
 public:
  explicit StepPhases(const Rank& rank) : rank_(rank) {}
  StepPhases(const StepPhases&) = delete;
  StepPhases& operator=(const StepPhases&) = delete;

  // The same parts, and hooks in them by which it knows where a step is; it must outlive these.
  StepParts around(StepParts parts);
  void begin();        // of a step
  PhaseSeconds end();  // what it took since

 private:
  struct LayerMarks;
  struct UpdateMarks;
  void enter(PhaseSeconds::Phase next);

  Rank rank_;
  PhaseSeconds seconds_;
  PhaseSeconds::Phase phase_ = PhaseSeconds::Step;
  double since_ = 0, data_ = 0, communication_ = 0;  // when phase_ began; of the trace, until then
};

}  // namespace aisc
