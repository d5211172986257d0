// DeepSpeed's configuration file (ds_config.json) as flags of a program that trains, and back
// (deepspeed.ai/docs/config-json, and the fact that all of its sizes are elements, not bytes).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/options.h"

namespace aisc {

// train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x data-parallel
// ranks. Of the three a file has some; one that is missing follows from the others.
struct DeepSpeedBatch {
  std::optional<std::int64_t> train, micro, accumulation;
};

// What TrainConfig calls batch and micro_batches. Two that are missing: one step accumulates
// nothing. Throws Error, with all numbers: they contradict each other, one does not divide, or
// there is neither `train` nor `micro`.
struct StepBatch {
  std::int64_t batch, micro_batches;
};
StepBatch step_batch(const DeepSpeedBatch& found, int data_ranks);

class DeepSpeedConfig {
 public:
  // Reads the file. Nothing in it is passed over: a key is a flag, or a line of remarks() says why
  // it changes nothing here, or it is refused. Throws Error with the line: not JSON; a key that
  // DeepSpeed has not, or that is not possible here, and why; a value that is none.
  explicit DeepSpeedConfig(const std::string& path);

  // The flags that it stands for: "--zero=3".
  const std::vector<std::string>& arguments() const { return arguments_; }
  // Sets what follows from sizes and ranks, which other flags say: batch, micro-batches, layers
  // that are gathered ahead, bytes of a bucket; `options.given` has them then. `here`: is this flag
  // on the command line? Throws Error: batch or micro-batches are, or step_batch() does.
  void complete(Options& options, const std::function<bool(const std::string& flag)>& here) const;
  const std::vector<std::string>& remarks() const { return remarks_; }
  // Of flags that an error names ("--shard-activations") where they come from, a line each.
  std::string origins(const std::string& error) const;

 private:
  friend class DeepSpeedReader;

  std::string path_;
  std::vector<std::string> arguments_, remarks_;
  std::map<std::string, std::string> origins_;  // by flag: "FILE:12: gradient_clipping"
  DeepSpeedBatch batch_;
  std::string batch_place_;
  std::optional<std::int64_t> prefetch_, bucket_;  // elements
};

// A configuration that says the same as the options, as far as it has words for it; and the flags
// that were given and are not in it.
struct WrittenConfig {
  std::string json;
  std::vector<std::string> without;
};
WrittenConfig to_deepspeed(const Options& options);

}  // namespace aisc
