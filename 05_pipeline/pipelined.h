// Training through a pipeline: the stages of a GPT for a Trainer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "05_pipeline/pipeline_rank.h"
#include "common/train/trainer.h"

namespace aisc {

struct PipelineChoice {
  // naive, gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, pipedream or 2bw.
  std::string schedule = "1f1b";
  int chunks = 1;  // stages a rank: of interleaved 2 or more, of zb-v 2, else 1
  Again again = Again::Never;
  std::int64_t keep_bytes = 0;         // PipelineOptions
  Weights weights = Weights::Stashed;  // of pipedream; 2bw's are TwoBuffered
  std::string machine = "limitless";   // on which layers take the time by which stages are cut
  LinkCodes codes = {};                // PipelineOptions
};

// By its name. pipedream and 2bw update m times and once; a run of them ends with nothing under
// way. Throws Error for a name that is none of these, chunks that it cannot have, and as the
// schedule's own function does.
Schedule find_schedule(const PipelineChoice& choice, int ranks, int micro_batches);

// The blocks of each of `stages` stages: by what the layers of such a GPT cost, forward and
// backward, in FLOP and bytes of a machine (planner.h); the first stage has the embedding, the
// last the head. With more stages than blocks embedding and head are cut like blocks, so that one
// of them or both are a stage alone. The same on every rank. Throws Error for more than two stages
// more than blocks.
std::vector<BlockRange> stages_of(const GptConfig& config, int stages,
                                  const std::string& machine = "limitless",
                                  const GptParts& parts = gpt2_parts());

// For a Trainer with config.pp ranks a pipeline. A step is one run of the schedule: m micro-batches
// of each pipeline's share of the batch. With pipedream each of them is an update of its own, and
// none is clipped, since a norm of all stages would make them wait for each other; a table on two
// stages does make the two wait. Throws Error for clipping with it, for micro-batches that are not
// equally large, since each is the mean of an update, and as PipelineRank. 2bw's version before the
// newest is in no checkpoint: a run that goes on takes its first step with the newest, as a new run
// does.
StepParts pipelined(const PipelineChoice& choice, StepParts parts = {});

}  // namespace aisc
