// One training run, new or resumed, with everything that it says and writes.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "11_gpt_3d/interrupt.h"
#include "11_gpt_3d/options.h"
#include "11_gpt_3d/progress.h"
#include "11_gpt_3d/report_data.h"
#include "11_gpt_3d/run_checkpoint.h"
#include "11_gpt_3d/world.h"

namespace aisc {

class Run {
 public:
  // Makes the folder of a new run, or goes on in that of `resumed`. Both references must outlive
  // the run. Throws Error: weights, checkpoint, corpus or folder that do not fit the options.
  Run(const Options& options, const Dataset& dataset, const Checkpoint* resumed,
      const std::string& command);

  // Trains to the last step, or until Ctrl-C; writes report, checkpoints, metrics and trace.
  // Returns the exit status: 0, or 130 after Ctrl-C.
  int train();

 private:
  std::string file(const std::string& name) const { return folder_ + "/" + name; }
  const GptConfig& model() const { return options_.train.model; }
  void take_up(const Checkpoint& checkpoint);
  void describe();
  void loop(const Interrupt& interrupt, Progress& progress);
  bool is_due(std::int64_t interval) const;
  StepRow one_step();
  void evaluate(StepRow& row);
  void save();
  void write_results(const std::string& status);
  std::string in_words(double loss) const;

  const Options& options_;
  const Dataset& dataset_;
  World world_;
  Trainer trainer_;
  BatchSampler sampler_;
  std::vector<Batch> validation_;
  RunState state_;
  std::string folder_;
  std::optional<RunLog> log_;
  RunFacts facts_;
  double validation_loss_ = std::numeric_limits<double>::quiet_NaN();
  double results_seconds_ = 0;       // when the report was last written
  double results_cost_seconds_ = 0;  // and how long that took
};

struct StreamedText {
  std::string text;  // without the prompt
  std::int64_t tokens = 0;
};

// Prints the prompt and what the model makes of it, as it comes, until it ends or Ctrl-C.
StreamedText stream_text(const Rank& rank, const Gpt& model, const Tokenizer& tokenizer,
                         const std::string& prompt, const GenerateOptions& options,
                         const Interrupt& interrupt);

}  // namespace aisc
