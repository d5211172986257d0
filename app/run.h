// One training run, new or resumed, with everything that it says and writes. All ranks have a Run
// and take the same steps; rank 0's alone says and writes, while the others wait for it.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/interrupt.h"
#include "app/options.h"
#include "app/peak_meter.h"
#include "app/plan.h"
#include "app/progress.h"
#include "app/report_data.h"
#include "app/run_checkpoint.h"
#include "app/step_phases.h"
#include "app/task.h"

namespace aisc {

class Run {
 public:
  // Makes and locks the folder of a new run, or goes on in that of `resumed`, which the caller has
  // locked. All references must outlive the run. Of `facts` command, cores and device are used.
  // `parts` are those of a step that options.data_parallel asks for.
  // Throws Error: weights, checkpoint, corpus or folder that do not fit the options.
  // `planned` (or null) is said at the begin, and with what was measured beside it at the end.
  Run(const Rank& rank, const Options& options, const Task& task, const Checkpoint* resumed,
      const RunFacts& facts, PeakMeter& peak, StepParts parts = {},
      const StepBooks* planned = nullptr);

  // Trains to the last step, or until Ctrl-C; writes report, checkpoints, metrics and trace.
  // Collective. Returns the exit status: 0, or that of the signal that asked any rank to end (130
  // after Ctrl-C).
  int train();

 private:
  std::string file(const std::string& name) const { return folder_ + "/" + name; }
  const GptConfig& model() const { return options_.train.model; }
  bool is_first_rank() const { return rank_.world.rank() == 0; }
  bool is_complete() const { return trainer_.steps_taken() >= options_.train.steps; }
  void resume_from(const Checkpoint& checkpoint);
  void go_on(const Checkpoint& checkpoint, const RunState& before);
  void describe();
  void loop(Progress& progress);
  bool is_due(std::int64_t interval) const;  // since the last step after which ranks agreed
  std::int64_t steps_between_averages() const {
    return std::max<std::int64_t>(1, options_.data_parallel.average_every);
  }
  // Ranks that step on their own have the same weights after an average only.
  bool ranks_agree() const { return trainer_.steps_taken() % steps_between_averages() == 0; }
  struct Asked {
    int signal;  // to end by; 0: none
    bool to_measure;
  };
  Asked asked();
  StepRow one_step();
  void require_finite(StepRow& row);  // its validation loss
  Task::Now now() const { return {rank_, trainer_, interrupt_ ? &*interrupt_ : nullptr}; }
  void add_sample(std::int64_t step);
  std::string last_sample();
  void save();
  void write_results(const std::string& status);
  void add_communication();
  void conclude(double seconds);
  void keep_what_there_is();
  std::string in_words(double loss) const;
  static std::string in_words(const Shares& right);  // "", or "; right are 93.1 % of ..."
  std::string resume_command() const;

  Rank rank_;
  const Options& options_;
  const Task& task_;
  const std::unique_ptr<const SampleSource>
      samples_;        // a trainer's loader looks at them: before it
  StepPhases phases_;  // the trainer's hooks tell it
  Trainer trainer_;
  std::vector<Batch> validation_;
  RunState state_;
  RunFacts facts_;
  PeakMeter& peak_;
  const StepBooks* planned_;
  StepBooks measured_;                 // of the last step
  std::vector<TimelineRow> timeline_;  // of a pipeline, rank 0's
  std::string folder_;
  int ended_by_ = 0;  // the signal that ended it; 0: none
  double validation_loss_ = std::numeric_limits<double>::quiet_NaN();
  Shares right_;  // where it was measured

  std::optional<Interrupt> interrupt_;  // one a process

  // Rank 0's alone.
  std::optional<RunLock> lock_;  // of a new run
  std::optional<RunLog> log_;
  double peak_seconds_ = 0;          // when the peak was last measured
  double results_seconds_ = 0;       // when the report was last written
  double results_cost_seconds_ = 0;  // and how long that took
};

}  // namespace aisc
