// The optimizer's state in a checkpoint, by parameter and whole, whatever ranks wrote it: "NAME/m"
// has all elements of parameter NAME, in its order; what each rank has of its own is "NAME@3", rank
// 3's.
#pragma once

#include <string>

#include "common/comm/rank.h"
#include "common/train/trainer.h"
#include "formats/safetensors.h"

namespace aisc {

// Writes the file `path`, the same on all ranks. Where the ranks divide the model among them
// (Reducer::divides) each writes the state of its slices, else rank 0 writes the state, which is
// the same everywhere; and each rank what it has of its own.
//
// Collective. All ranks throw Error if one of them cannot write its part (Agreement), or ranks
// differ in what a state is, or state that is not one number a weight would have to be divided.
// Host memory is `host`'s: where the state lies on a GPU, as much as its largest slice.
void write_state(const Rank& rank, const std::string& path, const Trainer& trainer, Device& host);

// Fills this rank's state; Trainer::resume() is then to follow. Each rank for itself. The precision
// may have changed: masters that are not in the file are what read_weights() made them, and weights
// without masters become those of the file; likewise the newest weights of a run whose updates were
// a step late, where this one's are not. Throws Error naming the tensor that is missing, as
// another optimizer's would be, or of another shape or type; and where ranks have state of their
// own and as many others wrote it. Host memory likewise.
void read_state(const Rank& rank, const Safetensors& file, Trainer& trainer, Device& host);

}  // namespace aisc
