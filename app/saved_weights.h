// The weights in a checkpoint, which is Hugging Face's GPT-2 whatever ranks wrote it (or, with
// experts, a file of its own: app/weights_file.h), to and from ranks that each may have a part of
// them: no rank ever holds the model.
#pragma once

#include <cstdint>
#include <string>

#include "common/comm/rank.h"
#include "common/train/trainer.h"
#include "formats/safetensors.h"

namespace aisc {

// Writes model.safetensors and config.json into `folder` (app/weights_file.h); `folder` is the
// same on all ranks. Where the ranks divide the model among them (Trainer::divides), parameter i is
// put together on rank i mod N, from all ranks' slices, and written by it; else rank 0 writes what
// it has. The files are the same to the byte.
//
// Collective. All ranks throw Error if one of them cannot write its part (Agreement), or where the
// slices are not each element once. Host memory is `host`'s: two parameters; where weights lie on a
// GPU also one and this rank's slices of N.
void write_weights(const Rank& rank, const std::string& folder, const Trainer& trainer,
                   std::int32_t end_of_text, Device& host);

// Fills the weights of this rank's slices, and of weights in a shorter type the optimizer's master
// copies with the file's own numbers; Trainer::resume() is then to follow. A model with experts may
// begin with a file of one without (StepParts::upcycle). Each rank for itself.
// Throws Error as Gpt2File does. Host memory: two parameters, as long as a master is.
void read_weights(const Safetensors& file, Trainer& trainer, Device& host);

}  // namespace aisc
