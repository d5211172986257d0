// --machine: a run of a program that trains, on machines that are not there.
#pragma once

#include "11_gpt_3d/train_program.h"

namespace aisc {

// Two steps, or as many as flags say, in virtual time, and what there is to say of the last one.
// Without numbers (--meta) nothing is read to learn from. Completes the sizes in `options`. Returns
// the exit status. Throws Error as emulate() does, and under a launcher of processes.
int run_emulated(const TrainProgram& program, Options& options);

}  // namespace aisc
