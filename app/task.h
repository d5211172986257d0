// What a run learns, and what it shows of it: all in which the programs that train differ beside
// their flags. A GPT's is app/gpt_task.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "app/generate.h"
#include "app/interrupt.h"
#include "app/run_log.h"
#include "app/weights_format.h"
#include "common/data/batches.h"
#include "common/train/trainer.h"

namespace aisc {

struct Evaluation {
  double loss = 0;
  Shares right = {};
};

class Task {
 public:
  virtual ~Task() = default;

  // ---- what it learns from. Both sources are made for a model of these sizes, and look at what
  // this holds.
  virtual std::unique_ptr<const SampleSource> training(const TrainConfig& config) const = 0;
  // Of `count` samples that are always the same, 0 .. count - 1.
  virtual std::unique_ptr<const SampleSource> validation(const TrainConfig& config,
                                                         std::int64_t count) const = 0;
  virtual std::uint64_t hash() const = 0;       // equal where two runs learn from the same
  virtual std::int64_t vocabulary() const = 0;  // tokens that a model of it has to know
  // Throws Error where there is too little for samples of this model.
  virtual void require_enough(const GptConfig& /*model*/) const {}
  // What it is, in a few words: a path, or what the course has.
  virtual std::string name() const = 0;
  // "20 files, 238 kB for training, 25 kB for validation"; a line that warns of something, or "".
  virtual std::string description() const = 0;
  virtual std::string remark() const { return ""; }

  // ---- what it is called
  virtual std::string model() const = 0;  // "GPT"
  virtual std::string unit() const = 0;   // what the loss is a mean over: "byte"; "": of several
  virtual double bytes_per_unit() const { return 0; }  // of text; 0: that is not known

  // ---- what a checkpoint has of it beside the optimizer's state
  virtual std::unique_ptr<const WeightsFormat> weights() const = 0;
  virtual void write_vocabulary(const std::string& /*folder*/) const {}

  // ---- how well it does on held-out samples: the loss, and shares of what is right, between 0 and
  // 1, by name. Collective, of each rank its windows of validation(), as Trainer::evaluate().
  virtual Evaluation evaluate(const Rank& /*rank*/, const Trainer& trainer,
                              std::span<const Batch> windows) const {
    return {trainer.evaluate(windows), {}};
  }

  // ---- what the model can do by now, in words; "" for nothing
  struct Now {
    const Rank& rank;
    const Trainer& trainer;
    const Interrupt* interrupt;  // of an end that is asked for meanwhile; null on some ranks
  };
  // Whether this rank takes part in show(), which is collective among those that do.
  virtual bool shows(const Rank& /*rank*/, const Trainer& /*trainer*/) const { return false; }
  virtual std::string show(const Now& /*now*/) const { return ""; }
  // Where that goes on with a text, which it leaves out: the text.
  virtual std::string prompt() const { return ""; }
  // The same at the end of a run, printed by rank 0 as it comes. What it returns is kept as
  // sample.txt.
  virtual std::string show_last(const Now& now) const { return show(now); }
};

// Those that write a text together with a trainer's model.
TextRanks text_ranks(const Trainer& trainer);

// Whether this rank has all layers of a model, or with tensor ranks a part of each: of the ranks
// for which that holds, the fewest that can show what it says of a whole text. They do it together.
bool shows_whole_texts(const Rank& rank, const Trainer& trainer);

}  // namespace aisc
