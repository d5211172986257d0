// The sizes of a model that is to be trained, and what a step of it takes.
#pragma once

#include <functional>
#include <string>

#include "app/options.h"
#include "app/plan.h"
#include "app/task.h"
#include "formats/checkpoint.h"

namespace aisc {

// --heads, or 0 where it is not given.
std::int64_t heads_given(const Options& options);

// Throws Error for what --order, --algorithm and --schedule cannot be, and where the model cannot
// be cut into as many stages.
void require_stages(const Options& options);

// Completes options.train.model: by the file of --init, which flags may not contradict, by flags,
// and by the vocabulary of `task`, where nobody says otherwise. `say` is told what is a guess.
// Throws Error for sizes that do not fit together or to the task.
void complete_sizes(Options& options, const Task& task,
                    const std::function<void(const std::string&)>& say);

// A checkpoint holds a model of one shape; everything else may change on the way. Throws Error
// naming the flag, and for a checkpoint of another program.
void require_same_model(const Checkpoint& checkpoint, const Options& options);

// Whether ranks do the same as one that runs for all of them: not those that send signs, own whole
// units, or meet in groups that only they can split off, of experts or of shards.
bool one_runs_for_all(const Options& options);

// What a step of these options holds and sends on rank 0, without numbers.
PlannedStep plan_of(const Options& options);

}  // namespace aisc
