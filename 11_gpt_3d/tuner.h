// Which values of some flags make a run quickest: every combination is tried without numbers, and
// where the machine is this one, the best few for real.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/options.h"

namespace aisc {

// The values that a flag may have: {"zero", {"0", "1", "3"}}. Other flags may stand behind a value
// that needs them: {"schedule", {"1f1b", "interleaved --chunks=2"}}.
struct TunedFlag {
  std::string name;
  std::vector<std::string> values;
};
using TuningSpace = std::vector<TunedFlag>;

// "zero=0,1,3 micro-batches=1,2". Throws Error: no such form, a flag twice, or one without values.
TuningSpace parse_space(const std::string& text);
// What usually decides: stages and tensor ranks that divide `options.ranks`, layers and heads;
// micro-batches; ZeRO's stage; recomputation. The last flag changes quickest.
TuningSpace usual_space(const Options& options);
// What may help the best of these: sequence parallelism, the schedule with its chunks, ranks that
// share sequences and experts, groups of shards, offload.
TuningSpace usual_moves(const Options& options);

struct TunedRun {
  std::vector<std::string> flags;  // "--zero=1"
  double bytes = 0;                // that the rank needs which needs most
  double seconds = 0;              // of a step, in virtual time; 0: not known
  double measured = 0;             // for real; 0: it was not
  std::string dropped = {};        // why it is none: the flags' own rules, or bytes
};

struct TunerOptions {
  std::vector<std::string> flags = {};  // that all have: of train_gpt
  TuningSpace space = {};
  // Beside the space: from the best few runs one value is changed after the other, of these flags
  // and of the space's, as long as that finds a better one. The first value of a move is that of a
  // run that does not give the flag. Of runs that all are too large those that need the least are
  // the best.
  TuningSpace moves = {};
  // Called after each run that was tried, with their number so far.
  std::function<void(std::size_t tried)> tell = {};
  std::string machine = {};  // whose virtual time counts: a name, or a profile
  double limit = 0;          // bytes of a rank; 0: the machine's
  int best = 0;              // so many are measured; 0: none
  // Seconds of one step of a run of `steps` steps, for real. Its errors drop the run.
  std::function<double(const Options& options, int steps)> measure = {};
  int measured_steps = 8;  // of each, in the mean of the rounds
};

// All runs of the space, and those that the moves came to: those that were measured from the
// quickest, then the others that fit from the quickest, then those that were dropped, in the order
// in which they were tried. Candidates that are measured share a budget by successive halving
// (10_model_compression/more/search.h). Throws Error for a space of more than 100,000; a run
// whose flags are refused is dropped, with the reason.
std::vector<TunedRun> tune(const TunerOptions& options);

// The step of a run on a machine, without numbers. Of a pipeline in full swing each turn of
// pp micro-batches takes as long as the one before: a step of many is two turns and the difference
// between them. With `turns` below 2 the whole step runs.
struct PredictedStep {
  double seconds = 0, exposed = 0;  // exposed: of waiting for others
  double bytes = 0;                 // of the rank that needs most
};
PredictedStep predicted_step(const Options& options, const std::string& machine, int turns = 2);

}  // namespace aisc
