// What a training run puts into a checkpoint (formats/checkpoint.h), and takes out again:
//
//   model.safetensors, config.json   the weights as their WeightsFormat has them
//   training_state.safetensors       the optimizer's state, by parameter: "wte.weight/m"; what each
//                                    rank has of its own as "onebit_adam/worker_error@3", rank 3's
//   tokenizer.json, vocab.txt, ...   what tokens stand for
//   checkpoint.json                  the manifest, with the run's flags, samples and corpus
//
// Weights and state are the same bytes however many ranks write them, and however these divide the
// model.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "app/weights_file.h"
#include "common/train/trainer.h"
#include "formats/checkpoint.h"

namespace aisc {

// What a run knows beside its tensors.
struct RunState {
  std::string config;             // JSON: the flags (Options::to_json)
  std::string command;            // that began it, and those that resumed it, one a line
  std::uint64_t corpus_hash = 0;  // of the tokens that it learns from
  std::int64_t samples = 0;       // seen so far: where in the data it is
  // Of the weights, made so far; none: an earlier version wrote it, which did not say.
  std::optional<std::int64_t> updates = {};
  std::vector<double> loss_scale = {};  // StepScale::state(); empty: the loss was not scaled

  std::string to_json() const;
  static RunState from_json(const std::string& json, const std::string& name);  // throws Error
};

// A line for the user where a run goes on, by `schedule`, that was saved without its updates, and
// had or has several a step; else "".
std::string updates_remark(const RunState& before, const std::string& schedule);

// Writes what tokens stand for into a checkpoint's folder, on rank 0.
using WriteVocabulary = std::function<void(const std::string& folder)>;

// All ranks write a checkpoint of `trainer` together; rank 0 returns its path, others "".
// Collective. `checkpoints` is rank 0's; others reach the same folders. Throws Error on all ranks,
// naming the one that could not write and why (a full disk, a read-only folder): then nothing of it
// is left.
std::string save_run(const Rank& rank, const std::string& checkpoints, const Trainer& trainer,
                     RunState state, const WeightsFormat& format = GptWeights(),
                     const WriteVocabulary& vocabulary = {});

// Fills a trainer of the same configuration, on any number of ranks that divide the model in any
// way: it goes on as the one that was saved, bitwise so if ranks are as many and divide alike.
// Collective. Throws Error on all ranks, naming the tensor that does not fit, or is not there:
// another optimizer, or other ranks where they have something of their own.
void restore_run(const Rank& rank, const Checkpoint& checkpoint, Trainer& trainer,
                 const WeightsFormat& format = GptWeights());

// Fills a trainer with the weights of a file, to begin a run with. Collective, and throws as
// restore_run.
void begin_from(const Rank& rank, const std::string& weights, Trainer& trainer,
                const WeightsFormat& format = GptWeights());

}  // namespace aisc
